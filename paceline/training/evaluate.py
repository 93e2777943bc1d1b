"""Accuracy and loss of a network on the test part of a data set, and how long finding them takes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import nn

from paceline.data.dataset import Dataset
from paceline.errors import DataError, PacelineError
from paceline.notebook import NotebookRecord
from paceline.step.build import load_data, placed_network
from paceline.step.failures import explained
from paceline.step.feeder import Feeder, make_feeder
from paceline.step.metrics import find_metric, metric_name
from paceline.step.order import Order
from paceline.step.phase import Batch, LossPhase, Outcome, Phase, comparable, phases_of
from paceline.step.placement import available_cores, choose_device, cpu_settings_restored, dtype_of
from paceline.step.randomness import default_generator, mix
from paceline.step.step import reported
from paceline.step.tally import Score, Tally
from paceline.training.checkpoint import load_checkpoint, load_parameters
from paceline.trust import check_code
from paceline.workload import Workload, with_settings

# Larger batches only cost memory; smaller ones launch more often than needed.
VALUES_A_BATCH = 1 << 22

LONGEST_S = 10.0
"""The longest that a validation is timed; a longer one is extrapolated."""
_TEST = 0x7E57  # keeps a test's random numbers apart from other uses of the same seed


class Evaluator:
    """Holds the test part where it is used, so that validating after each epoch costs only the forward pass."""

    def __init__(
        self, workload: Workload, network: nn.Module, phases: list[Phase], dataset: Dataset, device: torch.device
    ) -> None:
        self.workload, self.network = workload, network
        self.phases = [phase for phase in phases if phase.rule.trains_in(workload.epochs - 1)]
        """Those of the last epoch: what the run is for. Losses of all its validations are comparable."""
        self.generator = default_generator(device)
        samples = len(dataset.test)
        if not samples:
            raise DataError(f"{workload.data} has no test samples")
        values = max(1, torch.Size(dataset.shape).numel())
        batch = max(1, min(samples, VALUES_A_BATCH // values, 2000))
        if dataset.kind == "fields":  # whose sizes `shape` does not say
            batch = min(samples, workload.batch)
        self.metric = find_metric(workload, network)
        order = Order(samples, batch, workload.seed, shuffle=False)
        self.feeder: Feeder = make_feeder(
            dataset, order, device, dtype_of(workload), training=False, readers=available_cores()
        )

    def score(self, longest_s: float = math.inf) -> Score:
        """Of all test samples, or of those whose batches begin within `longest_s`."""
        began_s = perf_counter()
        tally = Tally(self.workload.top)
        buffers = [(buffer, buffer.clone()) for buffer in self.network.buffers()]
        self.network.eval()
        try:
            for number, batch in enumerate(self.feeder.batches(0)):
                outcome = self._outcome(batch, number)
                tally.add(outcome.loss, comparable(outcome.output, batch), batch[1])
                if self.metric is not None:
                    self.metric.add(batch, outcome.output)
                if longest_s < math.inf:
                    if self.generator.device.type == "cuda":
                        torch.cuda.synchronize()  # what was only launched is not done yet
                    if perf_counter() - began_s >= longest_s:
                        break
        finally:
            self.network.train()
            with torch.no_grad():
                for buffer, value in buffers:
                    buffer.copy_(value)
        score = tally.read()
        return score if self.metric is None else replace(score, metric=self.metric.read())

    def _outcome(self, batch: Batch, number: int) -> Outcome:
        """A loss needs only a forward pass; what phases of the user's own report comes with their gradients."""
        self.generator.manual_seed(mix(_TEST, self.workload.seed, number))
        return reported([self._of_phase(phase, batch) for phase in self.phases])

    def _of_phase(self, phase: Phase, batch: Batch) -> Outcome:
        if not isinstance(phase, LossPhase) or self.workload.phases:
            return phase.gradient(batch, self.generator)
        with torch.no_grad():
            loss, output = phase.forward(batch)
        return Outcome(loss, (), output)

    def close(self) -> None:
        self.feeder.close()


@dataclass(frozen=True)
class ValidationTime:
    seconds: float
    """Not a number where there is nothing to validate on."""
    how: str


@cpu_settings_restored()
def time_validation(workload: Workload, *, cache: Path | None = None, longest_s: float = LONGEST_S) -> ValidationTime:
    """One validation as training has it, after a batch that warms up; beyond `longest_s` it is extrapolated."""
    device, _ = choose_device(workload.device)
    try:
        with explained(workload):
            dataset = load_data(workload, cache)
            network = placed_network(workload, dataset, device)
            with closing(Evaluator(workload, network, phases_of(workload, network), dataset, device)) as evaluator:
                return _timed(evaluator, len(dataset.test), longest_s)
    except PacelineError as error:  # what was measured before is not lost for this
        return ValidationTime(float("nan"), f"not measured: {error}")


def _timed(evaluator: Evaluator, everything: int, longest_s: float) -> ValidationTime:
    evaluator.score(longest_s=0.0)
    start_s = perf_counter()
    samples = evaluator.score(longest_s).samples
    seconds = perf_counter() - start_s
    if samples == everything:
        return ValidationTime(seconds, f"one validation of {samples:,} samples")
    how = f"extrapolated to {everything:,} samples from {samples:,} of them"
    return ValidationTime(seconds * everything / samples, how)


@dataclass(frozen=True, repr=False)
class Evaluation(NotebookRecord):
    """Accuracy and loss of a run's saved parameters: the result of `paceline.evaluate`."""

    run: str
    workload: Workload
    data: str
    samples: int
    loss: float
    accuracy: float
    top_accuracy: float
    metric: float = math.nan
    """The metric of the workload or of its network, if there is one."""
    metric_name: str = ""

    def facts(self) -> dict[str, Any]:
        return {
            "network": self.workload.network, "data": self.data, "accuracy": self.accuracy, "loss": self.loss,
            **({self.metric_name: self.metric} if self.metric_name else {}), "samples": self.samples,
        }  # fmt: skip


@cpu_settings_restored()
def evaluate(path: Path, changes: Mapping[str, str | None], cache: Path | None = None) -> Evaluation:
    """How well the saved parameters of a run do on its own test data, or with a change of data, device or network."""
    workload, dataset, network, place = restored(path, changes, cache)
    evaluator = Evaluator(workload, network, phases_of(workload, network), dataset, place)
    with closing(evaluator), explained(workload):
        score = evaluator.score()
    return Evaluation(
        str(path), workload, workload.data, score.samples, score.loss, score.accuracy, score.top_accuracy,
        score.metric, metric_name(workload, network),
    )  # fmt: skip


def restored(
    path: Path, changes: Mapping[str, str | None], cache: Path | None = None
) -> tuple[Workload, Dataset, nn.Module, torch.device]:
    """The workload of a saved run with `changes`, its data, and the network with the saved parameters on its device."""
    checkpoint = load_checkpoint(path)
    workload = with_settings(checkpoint.workload, {k: v for k, v in changes.items() if v is not None})
    given = {key for key, value in changes.items() if value is not None}
    check_code({key: value for key, value in vars(workload).items() if key not in given}, path, checkpoint.made_in)
    place, _ = choose_device(workload.device)
    small = with_settings(workload, {"batch": 1, "accumulate": 1})  # nothing is trained: few samples suffice
    dataset = load_data(small, cache)
    network = placed_network(workload, dataset, place)
    load_parameters(network, checkpoint, path)
    return workload, dataset, network, place
