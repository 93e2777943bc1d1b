"""The networks of a family for some data, shallow first: their sizes follow from those of the inputs and outputs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from paceline.advice import family as families
from paceline.advice.data_facts import DataFacts
from paceline.advice.task import IMAGE, SPECIFIED, TEXT
from paceline.errors import InputError
from paceline.networks.known import KNOWN

NARROWEST, WIDEST = 16, 2048
SHORT_SEQUENCE = 20
"""Steps that a plain RNN still remembers."""


@dataclass(frozen=True)
class NetworkChoice:
    network: str
    reason: str
    """Why it has this shape."""
    options: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    """Other settings of the workload."""
    family: str = ""
    """Its own, where it is simpler than the others."""
    first: bool = False
    """Whether it is advised before any was tried."""


def networks_for(family: str, task: str, facts: DataFacts) -> tuple[NetworkChoice, ...]:
    """From shallow to deep."""
    made: dict[str, Callable[[str, DataFacts], tuple[NetworkChoice, ...]]] = {
        families.FEED_FORWARD: _feed_forward, families.AUTO_ENCODER: _auto_encoders,
        families.CONVOLUTIONAL: _convolutional, families.RECURRENT: _recurrent, families.RECURSIVE: _recursive,
        families.VARIATIONAL: _variational, families.ADVERSARIAL: _adversarial, families.BELIEF: _belief,
        families.DECONVOLUTIONAL: _deconvolutional,
    }  # fmt: skip
    found = tuple(each for each in made[family](task, facts) if each.network in KNOWN)
    if not any(each.first for each in found):
        raise InputError(f"this version has no {family} network")
    return found


def width(facts: DataFacts) -> int:
    """Of a fully connected layer: that of the inputs or the outputs, whichever is larger."""
    return rounded(max(facts.inputs, facts.classes))


def rounded(units: float) -> int:
    """To the next multiple of 8, within limits."""
    return min(WIDEST, max(NARROWEST, 8 * math.ceil(units / 8)))


def falling(inputs: int, code: int, layers: int) -> list[int]:
    """Sizes that fall from the inputs to the code by the same factor from layer to layer."""
    factor = (code / inputs) ** (1 / (layers + 1))
    return [rounded(inputs * factor**number) for number in range(1, layers + 1)]


def code_size(inputs: int) -> int:
    """Numbers of a code: 20 for the 784 pixels of a digit, and as the square root of the inputs for others."""
    return max(2, round(0.72 * math.sqrt(inputs)))


def _feed_forward(task: str, facts: DataFacts) -> tuple[NetworkChoice, ...]:
    units = width(facts)
    near = f"a hidden layer as wide as the {facts.inputs:,} inputs"
    if units < max(facts.inputs, facts.classes):
        near = f"a hidden layer of {units:,} units, the most that is advised, for {facts.inputs:,} inputs"
    elif units > facts.inputs + 8:
        near = f"a hidden layer of {units:,} units, wider than the {facts.inputs:,} inputs"
    return (
        NetworkChoice("mlp", f"the shallow candidate: {near}", {"hidden": [units]}, first=True),
        NetworkChoice("mlp", "one more layer, if a single one cannot separate the classes", {"hidden": [units, units]}),
        NetworkChoice(
            "mlp", "three wider layers, with dropout against overfitting",
            {"hidden": [rounded(2 * units)] * 3}, {"dropout": 0.2},
        ),
    )  # fmt: skip


def _auto_encoders(task: str, facts: DataFacts) -> tuple[NetworkChoice, ...]:
    inputs, code = facts.inputs, code_size(facts.inputs)
    said = f"{inputs:,} inputs become a code of {code}"
    fully_connected = tuple(
        NetworkChoice(
            "autoencoder", f"{said}: layers get narrower down to the code, then wider again",
            {"hidden": falling(inputs, code, layers), "code": code}, first=layers == 1,
        )
        for layers in (1, 2, 3)
    )  # fmt: skip
    if facts.kind != IMAGE:
        return fully_connected
    why = f"{said} by convolutions, and an image again by convolutions that double its sides"
    return (*fully_connected, NetworkChoice("deconvolutional", why, {"code": code}, family=families.DECONVOLUTIONAL))


def _convolutional(task: str, facts: DataFacts) -> tuple[NetworkChoice, ...]:
    side = min(facts.shape[-2:])
    if side > families.SMALL_IMAGE:
        return (
            NetworkChoice("resnet18", f"18 layers reduce {side} pixels per side to 1", first=True),
            NetworkChoice("resnet50", "50 layers, if 18 do not reach the error"),
        )
    units = width(facts)
    colour = facts.shape[0] > 1
    return (
        NetworkChoice(
            "mlp", f"the shallow candidate: one hidden layer of {units:,} units", {"hidden": [units]},
            family=families.FEED_FORWARD,
        ),
        NetworkChoice(
            "lenet5", "two convolutions with pooling, then three fully connected layers",
            first=not colour,
        ),
        NetworkChoice(
            "resnet20", f"19 convolutions in three stages, each with half as many pixels per side: {side} at first",
            first=colour,
        ),
    )  # fmt: skip


def _recurrent(task: str, facts: DataFacts) -> tuple[NetworkChoice, ...]:
    if facts.kind == TEXT:
        why = "a state of 256 numbers, more than the characters there are, so that it also holds what came before"
        return (
            NetworkChoice("textlstm", "the shallow candidate: one layer with a state of 128 numbers", {"hidden": 128}),
            NetworkChoice("textlstm", why, first=True),
            NetworkChoice("textlstm", "two layers; the second one reads the output of the first", {"depth": 2}),
        )
    step = facts.inputs // facts.steps
    units = min(512, max(32, rounded(2 * max(step, facts.classes))))
    sized = f"a state of {units} numbers for steps of {step:,} and {facts.classes:,} classes"
    short = facts.steps <= SHORT_SEQUENCE
    far = f"{sized}; over {facts.steps} steps, only gates preserve early inputs"
    return (
        NetworkChoice("rnn", f"the shallow candidate: {sized}, without gates", {"hidden": units}, first=short),
        NetworkChoice("gru", f"{sized}, with two gates", {"hidden": units}),
        NetworkChoice("lstm", far, {"hidden": units}, first=not short),
    )


def _variational(task: str, facts: DataFacts) -> tuple[NetworkChoice, ...]:
    network, code = ("cvae" if task == SPECIFIED else "vae"), code_size(facts.inputs)
    why = f"{facts.inputs:,} inputs become a code of {code} random numbers, through narrower and narrower layers"
    return tuple(
        NetworkChoice(
            network, why, {"hidden": falling(facts.inputs, code, layers), "code": code}, first=layers == 2
        )
        for layers in (1, 2, 3)
    )  # fmt: skip


def _adversarial(task: str, facts: DataFacts) -> tuple[NetworkChoice, ...]:
    side = min(facts.shape[-2:])
    doublings = max(1, min(4, int(math.log2(side / 7)))) if side >= 14 else 1
    channels = [2 ** (5 + number) for number in range(doublings)]
    why = f"sides double {doublings} times to {side} pixels in the generator, and halve in the discriminator"
    return (NetworkChoice("gan", why, {"channels": channels}, first=True),)


def _deconvolutional(task: str, facts: DataFacts) -> tuple[NetworkChoice, ...]:
    code = code_size(facts.inputs)
    why = f"{facts.inputs:,} inputs become a code of {code}"
    return (
        NetworkChoice(
            "deconvolutional", f"{why}: sides halve three times and double again",
            {"channels": [16, 32, 64], "code": code}, first=True,
        ),
        NetworkChoice(
            "deconvolutional", f"{why}: sides halve four times", {"channels": [16, 32, 64, 128], "code": code}
        ),
    )  # fmt: skip


def _belief(task: str, facts: DataFacts) -> tuple[NetworkChoice, ...]:
    units = width(facts)
    return (
        NetworkChoice(
            "mlp", f"the shallow candidate: one hidden layer of {units:,} units", {"hidden": [units]},
            family=families.FEED_FORWARD,
        ),
        NetworkChoice(
            "dbn", f"two layers of {units:,} units, pre-trained as restricted Boltzmann machines",
            {"hidden": [units, units]}, first=True,
        ),
    )  # fmt: skip


def _recursive(task: str, facts: DataFacts) -> tuple[NetworkChoice, ...]:
    return (
        NetworkChoice("recursive", "a state of 32 numbers for each node of a tree", {"hidden": 32}, first=True),
        NetworkChoice("recursive", "twice the state", {"hidden": 64}),
    )
