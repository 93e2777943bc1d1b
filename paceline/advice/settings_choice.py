"""Batch, epochs and initial weights of a network, each with its reason."""

from __future__ import annotations

import math
from dataclasses import replace

from paceline.advice.advice import Choice
from paceline.advice.data_facts import DataFacts
from paceline.advice.distribution_choice import holds
from paceline.advice.hardware import HardwareOption
from paceline.advice.network_choice import NetworkChoice
from paceline.advice.predictor import Predictor
from paceline.cost.prediction import Prediction
from paceline.formatting import count, duration, rate
from paceline.free_memory import memory_size
from paceline.networks.initial import SMALL_STD
from paceline.workload import Workload, resolve

UPDATES_PER_EPOCH = 20
"""The fewest that a batch should leave."""
SMALLEST_BATCH = 16
FEWEST_UPDATES = 500
"""Of a whole training: with little data, it takes more passes."""
MOST_EPOCHS = 100
LARGE_IMAGES_EPOCHS = 30
"""In place of the single epoch that the networks for large images have in timings."""
WORTHWHILE = 1.1
"""Samples/s with twice the batch, relative to those before, from which the larger batch is better."""


def candidate_workload(chosen: NetworkChoice, facts: DataFacts) -> Workload:
    """The network's own settings, with a batch and a number of epochs for this amount of data."""
    made = resolve(chosen.network, {"data": facts.source, **chosen.settings})
    made = replace(made, options=chosen.options, batch=_fitting_batch(made.batch, facts.samples))
    made = replace(made, init=initial_weights(chosen, facts))
    usual = made.epochs if made.epochs > 1 else LARGE_IMAGES_EPOCHS
    updates = math.ceil(facts.samples / made.batch)
    return replace(made, epochs=max(usual, min(MOST_EPOCHS, math.ceil(FEWEST_UPDATES / updates))))


def _fitting_batch(usual: int, samples: int) -> int:
    """The network's own batch, halved until an epoch has enough updates."""
    batch = usual
    while batch >= 2 * SMALLEST_BATCH and samples < UPDATES_PER_EPOCH * batch:
        batch //= 2
    return min(batch, samples)


def choose_batch(
    workload: Workload, facts: DataFacts, option: HardwareOption, predictor: Predictor
) -> tuple[Workload, Prediction | None, Choice]:
    """The network's own batch, or twice that where the device is then clearly faster and updates stay frequent."""
    found = {
        batch: predictor.on(replace(workload, batch=batch), option) for batch in (workload.batch, 2 * workload.batch)
    }
    (small, slow), (large, fast) = found.items()
    updates = f"{count(math.ceil(facts.samples / small), 'update')} per epoch"
    own = "the network's default"
    if small < resolve(workload.network).batch:
        own = f"smaller than the network's default of {resolve(workload.network).batch}: there are few samples"
    if slow is None or fast is None:
        return workload, slow, Choice("batch", str(small), f"{own}: {updates}")
    gain = fast.samples_per_s / slow.samples_per_s
    compared = f"{small} gives {rate(slow.samples_per_s)}, {large} {rate(fast.samples_per_s)}"
    frequent = facts.samples >= UPDATES_PER_EPOCH * large
    if gain < WORTHWHILE or not frequent or not holds(option, fast) or small < resolve(workload.network).batch:
        return workload, slow, Choice("batch", str(small), f"{own}: {updates}; {compared}", slow.iteration_s)
    still = f"still {math.ceil(facts.samples / large):,} updates per epoch"
    why = f"twice the network's default of {small}, {still}: {compared}"
    return replace(workload, batch=large), fast, Choice("batch", str(large), why, fast.iteration_s)


def fit_memory(
    workload: Workload, prediction: Prediction | None, chosen: Choice, option: HardwareOption, predictor: Predictor
) -> tuple[Workload, Prediction | None, Choice]:
    """Micro-batches whose gradients are added up, where a device cannot hold the whole batch but can hold them."""
    if prediction is None or holds(option, prediction):
        return workload, prediction, chosen
    pieces = 2
    while pieces <= workload.batch:
        smaller = replace(workload, accumulate=pieces)
        found = predictor.on(smaller, option)
        if found is not None and holds(option, found):
            why = f"in {pieces} micro-batches, because the whole batch needs {memory_size(prediction.memory_bytes)}"
            return smaller, found, replace(chosen, reason=f"{chosen.reason}; {why}", predicted_s=found.iteration_s)
        pieces *= 2
    return workload, prediction, chosen


def fit_epochs(workload: Workload, epoch_s: float, limit_s: float) -> tuple[Workload, Choice]:
    """As many epochs as the time at hand allows, where it is known."""
    usual = workload.epochs
    known = math.isfinite(epoch_s) and epoch_s > 0
    predicted_s = epoch_s * usual if known else math.nan
    if not known or predicted_s <= limit_s:
        within = f", within {duration(limit_s)}" if known and math.isfinite(limit_s) else ""
        own = usual == resolve(workload.network).epochs
        why = "the network's default" if own else "more than the default, because there are few samples"
        why = "a common number for large images" if usual == LARGE_IMAGES_EPOCHS and not own else why
        return workload, Choice("epochs", str(usual), f"{why}{within}", predicted_s)
    fewer = max(1, math.floor(limit_s / epoch_s))
    late = epoch_s > limit_s
    why = (
        f"even one takes longer than {duration(limit_s)}: take a faster device, a smaller network or fewer samples"
        if late else f"as many as fit into {duration(limit_s)}; {usual} would take {duration(predicted_s)}"
    )  # fmt: skip
    return replace(workload, epochs=fewer), Choice("epochs", str(fewer), why, fewer * epoch_s)


def initial_weights(chosen: NetworkChoice, facts: DataFacts) -> str:
    """About 0.1, or below where the default is: PyTorch's has a standard deviation of 1 / sqrt(3 n) with n inputs."""
    return f"small:{SMALL_STD}" if chosen.network == "mlp" and _default_std(facts) > SMALL_STD else "default"


def initial_choice(workload: Workload, facts: DataFacts) -> Choice:
    if workload.init != "default":
        why = f"training starts better from small weights; the default would be {_default_std(facts):.2f} here"
        return Choice("initial weights", f"standard deviation {SMALL_STD}", why)
    if workload.network in ("mlp", "dnn", "autoencoder"):
        why = f"training starts better from small weights, and the default for {facts.inputs:,} inputs is small"
        return Choice("initial weights", f"default (standard deviation {_default_std(facts):.2g})", why)
    return Choice("initial weights", "default", "they are small, and scaled to the size of each layer")


def _default_std(facts: DataFacts) -> float:
    return 1 / math.sqrt(3 * facts.inputs)
