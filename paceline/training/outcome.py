"""Warns of a run that never learned or stopped learning, with the likely reason.

A run is judged when it is over (finished or diverged), by these rules:

- The loss is not finite, in the record of any epoch or because the run diverged.
- The loss rose past its start: the training loss of the last epoch is above that of the first, by more than a tenth
  of it (and 0.05 where classes are told apart). It takes two epochs and `FEWEST_UPDATES`. Where other phases follow the
  first, the first epoch of the last ones is the start. Where the network brings a metric, as a GAN, whose losses are
  not to fall, this is said of the metric instead.
- It is worse than guessing: at chance level, and the loss is above twice that of giving every class the same share.
- It ends at chance level: the test accuracy is within a quarter of the room below it (see `_is_chance`) of what the
  most frequent class alone reaches. Only after `FAIR_UPDATES` updates and `FAIR_SAMPLES` samples per class: before
  that, a network that starts slowly has not had a fair chance.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from paceline.data.dataset import Arrays, Dataset
from paceline.training.run import Epoch, Run

FEWEST_UPDATES = 10
FAIR_UPDATES = 100
FAIR_SAMPLES = 100
"""Samples of each class, repetitions counted."""
SOME_STALENESS, HIGH_STALENESS = 1.0, 8.0
"""Mean staleness, in updates: from the first on it may be a reason, from the second on it is the likely one. Sixteen
asynchronous workers with uncorrected gradients diverge where eight learn, see docs/explanation/strategies.md."""


def chance_accuracy(dataset: Dataset) -> float:
    """The share of the most frequent class in the test data; 1 / classes where labels would have to be read from files.

    0 where nothing is classified.
    """
    if not dataset.classes:
        return 0.0
    part = dataset.test
    if not isinstance(part, Arrays) or part.y.is_floating_point():
        return 1 / len(dataset.classes)
    x, labels = part.x, part.y
    if isinstance(x, Tensor) and dataset.kind == "text" and labels.shape != x.shape:
        labels = x  # the label of a character is the next one
    labels = labels.flatten().to(torch.int64)
    return int(torch.bincount(labels).max()) / len(labels) if len(labels) else 0.0


def warnings_of(run: Run) -> tuple[str, ...]:
    """One line for each thing that is wrong with how `run` ended, with the likely reason; usually none."""
    if run.status not in ("finished", "diverged"):
        return ()
    epochs = run.epochs
    if where := _not_finite(run):
        return (f"the loss is not finite {where}: {_reason(run)}",)
    if not epochs or run.updates < FEWEST_UPDATES:
        return ()
    last = epochs[-1]
    chance = _is_chance(run, last)
    said = [rose] if (rose := _rise(run)) else []
    if chance and (_worse_than_guessing(run, last) or said or _had_a_fair_chance(run)):
        accuracy = f"test accuracy {100 * last.test_accuracy:.1f} %"
        said.append(f"the run ends at chance level: {accuracy}, guessing {100 * run.chance_accuracy:.1f} %")
    if not said:
        return ()
    if chance and last.train_accuracy > run.chance_accuracy + 0.25:
        fitted = f"the training data are learned ({100 * last.train_accuracy:.1f} %), the test data are not like them"
        return (*said[:-1], f"{said[-1]}; {fitted}")
    return (*said[:-1], f"{said[-1]}; {_reason(run)}")


def _not_finite(run: Run) -> str:
    for epoch in run.epochs:
        if not math.isfinite(epoch.loss):
            return f"in epoch {epoch.epoch}"
    for point in run.points:  # not every epoch is validated
        if not math.isfinite(point.test_loss):
            return f"on the test data after epoch {point.epoch:g}"
    return f"in epoch {len(run.epochs) + 1}" if run.status == "diverged" else ""


def _rise(run: Run) -> str:
    """Of the loss, or of the metric of a network that brings one; empty: it did not rise."""
    own = run.metric and not run.workload.metric
    if own:
        values = {epoch.epoch: epoch.test_metric for epoch in run.epochs if math.isfinite(epoch.test_metric)}
    else:
        begun = max((stage for stage in run.stages if stage <= run.epochs[-1].epoch), default=1)
        values = {epoch.epoch: epoch.loss for epoch in run.epochs if epoch.epoch >= begun}
    if len(values) < 2:
        return ""
    (first, start), *_, (last, end) = values.items()
    margin = 0.1 * abs(start) + (0.05 if run.classes else 0.0)
    what = f"the {run.metric if own else 'loss'} rose from"
    return f"{what} {start:.4g} in epoch {first} to {end:.4g} in epoch {last}" if end > start + margin else ""


def _is_chance(run: Run, last: Epoch) -> bool:
    """0.1 of ten balanced classes means up to 0.1225, 0.5 of two up to 0.5625; a test has noise."""
    chance = run.chance_accuracy
    return chance > 0 and last.test_accuracy <= chance + 0.25 * chance * (1 - chance)  # false for an accuracy of NaN


def _worse_than_guessing(run: Run, last: Epoch) -> bool:
    return min(last.loss, last.test_loss) > 2 * _guessing_loss(run)


def _had_a_fair_chance(run: Run) -> bool:
    steps = run.distribution.steps if run.distribution is not None else run.updates
    return run.updates >= FAIR_UPDATES and steps * run.workload.batch >= FAIR_SAMPLES * run.classes


def _reason(run: Run) -> str:
    staleness = run.distribution.ledger.mean_staleness if run.distribution is not None else 0.0
    rate = f"learning rate ({run.workload.lr:g})"
    if staleness >= HIGH_STALENESS:
        remedy = "use fewer workers, synchronous groups, a staleness bound or a correction"
        return f"the likely reason is staleness (mean {staleness:.1f} updates): {remedy}"
    if staleness >= SOME_STALENESS:
        both = f"the {rate} for a mean staleness of {staleness:.1f} updates"
        return f"the likely reason is {both}: lower the rate, or use fewer workers or a correction"
    if run.epochs and run.epochs[-1].loss <= 1.2 * _guessing_loss(run):  # nothing was learned, and nothing exploded
        return f"the likely reason is the {rate}, too high or too low for this network: try others"
    return f"the likely reason is the {rate}: lower it"


def _guessing_loss(run: Run) -> float:
    """Cross entropy when every class is given the same share, as by a new network; NaN for other losses."""
    return math.log(run.classes) if run.workload.loss == "cross-entropy" and run.classes > 1 else math.nan
