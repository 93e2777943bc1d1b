"""The learning rate as settings describe it: its default for an optimizer, and its schedule."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import re
from dataclasses import dataclass
from typing import Any

from paceline import user_code
from paceline.errors import PacelineError, WorkloadError

SIMILAR = ({"sgd", "momentum", "nesterov"}, {"adam", "adamw", "nadam"})
"""Optimizers for which the same rate is reasonable."""
RATES = {
    "sgd": 0.1, "momentum": 0.1, "nesterov": 0.1, "adagrad": 0.01, "adadelta": 1.0, "rmsprop": 0.01, "adam": 0.001,
    "adamw": 0.001, "nadam": 0.002,
}  # fmt: skip
"""PyTorch's defaults, but for SGD, where PyTorch's 0.001 is far too low for training from scratch."""


@dataclass(frozen=True)
class Schedule:
    """How the learning rate changes: linear warm-up over some epochs, then constant, step or cosine."""

    shape: str = "constant"
    own: str = ""
    """`module:name` of a scheduler of the user's, in place of all that follows."""
    warm_up: float = 0.0
    every: float = 30.0
    factor: float = 0.1


@functools.cache
def parse_schedule(text: str) -> Schedule:
    """`warm-up:1+step:30:0.1` and the like."""
    schedule = Schedule()
    if ":" in text and re.split(r"[:+]", text)[0] not in ("constant", "cosine", "step", "warm-up"):
        return Schedule(shape="own", own=text)
    for part in text.split("+"):
        name, *numbers = part.split(":")
        try:
            values = [float(number) for number in numbers]
        except ValueError:
            raise WorkloadError(f"schedule {text!r}: {part!r} should be NAME:NUMBER") from None
        if any(not math.isfinite(v) or v <= 0 for v in values):
            raise WorkloadError(f"schedule {text!r}: {part!r} needs numbers above 0")
        if name in ("constant", "cosine") and not values:
            schedule = dataclasses.replace(schedule, shape=name)
        elif name == "step" and len(values) <= 2:
            every, factor = [*values, *(30.0, 0.1)[len(values) :]]
            schedule = dataclasses.replace(schedule, shape="step", every=every, factor=factor)
        elif name == "warm-up" and len(values) <= 1:
            schedule = dataclasses.replace(schedule, warm_up=values[0] if values else 1.0)
        else:
            raise WorkloadError(
                f"schedule {text!r}: {part!r} is none of constant, cosine, step:EPOCHS:FACTOR, warm-up:EPOCHS; "
                "or write module:name"
            )
    return schedule


def default_rate(optimizer: str, rate: float, chosen_for: str) -> float:
    """The rate of a workload that names this optimizer but no rate; its usual `rate` was chosen for another one.

    0.1 suits SGD, and with Adam it ruins most networks.
    """
    if any({optimizer, chosen_for} <= group for group in SIMILAR):
        return rate
    if ":" not in optimizer:
        return RATES.get(optimizer, rate)
    try:
        found = user_code.find(optimizer)
    except PacelineError:  # reported where the optimizer is made
        return rate
    return _rate_of(found, rate)


def _rate_of(found: Any, otherwise: float) -> float:
    """The default of a class; functions and optimizers that were made already have their own."""
    made_by = found.func if isinstance(found, functools.partial) else found
    try:
        default = inspect.signature(made_by).parameters["lr"].default if isinstance(made_by, type) else None
    except (KeyError, TypeError, ValueError):
        return otherwise
    return float(default) if isinstance(default, int | float) and default > 0 else otherwise
