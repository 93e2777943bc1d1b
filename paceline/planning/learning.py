"""How many epochs a training setup needs to reach an accuracy: trained in virtual time on a subset of the data.

The number of samples seen carries over from the subset to all data, not the number of passes: an epoch of all data
shows more samples, and none twice. So epochs = passes * samples of the subset / samples of all data.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from paceline.errors import Diverged, InputError, PacelineError
from paceline.planning.candidate import ONE_PROCESS, Candidate, joins_batches, strategy_kind
from paceline.planning.plan import Learned
from paceline.strategy.strategy import Strategy
from paceline.training.run import Epoch, Run
from paceline.training.watcher import Silent
from paceline.workload import Workload

SAMPLE = 10_000
"""Training samples in the subset, if there are more."""
MAX_TRAININGS = 24
SMALLER_BATCH_SHARE = 0.5
"""A smaller batch needs at least this share of the samples that the workload needs."""
STALER_SHARE = 0.9
"""A setup needs at least this share of the samples that a less stale one needs."""
COMPUTE = ("gamma", (100.0, 0.01))
"""Step times with typical noise, so that the order of workers varies."""

Train = Callable[[Workload, Strategy, int, float], Learned]
Setup = tuple[Strategy, int, int]
"""Strategy, number of workers and batch size."""


class Learning:
    """Trains each setup once, on demand. `train` takes a workload, a strategy, workers and the target accuracy."""

    def __init__(self, workload: Workload, target: float, samples: int, train: Train | None = None) -> None:
        self.workload, self.target, self.samples = workload, target, samples
        self.sample = min(samples, SAMPLE)
        self._train = train or train_sample(self.sample, samples)
        self._results: dict[Setup, Learned] = {}
        self._first: Learned | None = None

    @property
    def results(self) -> tuple[Learned, ...]:
        return tuple(self._results.values())

    @property
    def sample_words(self) -> str:
        """A description of the data trained on."""
        if self.sample == self.samples:
            return f"all {self.samples:,} training samples"
        return f"the first {self.sample:,} of {self.samples:,} training samples"

    def result(self, candidate: Candidate) -> Learned:
        return self._results[_setup(candidate)]

    def known(self, candidate: Candidate) -> bool:
        return _setup(candidate) in self._results

    def least(self, candidate: Candidate) -> float:
        """The number of epochs, or a lower bound from less stale setups."""
        if self.known(candidate):
            return self.result(candidate).epochs
        first = self._baseline()
        least = first.epochs * (SMALLER_BATCH_SHARE if candidate.batch < self.workload.batch else STALER_SHARE)
        less_stale = [
            STALER_SHARE * found.epochs for found in self._less_stale(_setup(candidate)) if found.status == "reached"
        ]
        return max([least, *less_stale])

    def why_not(self, candidate: Candidate) -> str:
        """A setup that failed is not tried with more samples in flight."""
        setup = _setup(candidate)
        found = [self._results[setup]] if setup in self._results else self._less_stale(setup)
        if failed := [one for one in found if one.status != "reached"]:
            return "diverge" if failed[0].status == "diverged" else f"do not reach {self.target:.4g}"
        if setup in self._results:
            return ""
        if setup[1] * setup[2] > self.sample:
            return "have more samples in flight than the data have"
        return f"were not trained: {MAX_TRAININGS} others were" if len(self._results) >= MAX_TRAININGS else ""

    def find(self, candidate: Candidate) -> None:
        """Trains a candidate, or first one process with its batch size: if that fails, the candidate fails."""
        setup = _setup(candidate)
        alone = (ONE_PROCESS, 1, candidate.batch)
        if alone not in self._results and candidate.batch >= self.workload.batch:
            setup = alone
        if setup not in self._results:
            self._results[setup] = self._train(replace(self.workload, batch=setup[2]), setup[0], setup[1], self.target)

    def _less_stale(self, setup: Setup) -> list[Learned]:
        """Results with fewer workers, a smaller batch, or one process; batches below the workload's do not count."""
        kind = strategy_kind(setup[0])
        return [
            found for (strategy, workers, batch), found in self._results.items()
            if (strategy_kind(strategy) == kind or workers == 1) and workers <= setup[1]
            and self.workload.batch <= batch <= setup[2]
        ]  # fmt: skip

    def _baseline(self) -> Learned:
        """The workload in one process, the baseline for the others."""
        if self._first is None:
            found = self._train(self.workload, ONE_PROCESS, 1, self.target)
            if found.status != "reached":
                raise PacelineError(
                    f"{self.target:.4g} is not reached in {self.workload.epochs} passes over {self.sample_words} "
                    f"(best {found.accuracy:.4f}): ask for less, or train it for more epochs"
                )
            self._first = self._results[ONE_PROCESS, 1, self.workload.batch] = found
        return self._first


def _setup(candidate: Candidate) -> Setup:
    """A synchronous group computes the same as one process with the global batch."""
    strategy = candidate.strategy
    if candidate.workers == 1 or joins_batches(strategy):
        return ONE_PROCESS, 1, candidate.workers * candidate.batch
    return strategy, candidate.workers, candidate.batch


class _Reached(Exception):
    pass


class _Watch(Silent):
    """Ends the training when the accuracy is reached."""

    def __init__(self, target: float) -> None:
        self.target, self.best, self.passes = target, 0.0, 0

    def begun(self, run: Run, notes: list[str]) -> None:
        pass

    def finished_epoch(self, epoch: Epoch, run: Run) -> None:
        self.passes = epoch.epoch
        if math.isnan(epoch.test_accuracy):
            raise InputError("`target_accuracy` needs data with classes: this workload has no accuracy")
        self.best = max(self.best, epoch.test_accuracy)
        if epoch.test_accuracy >= self.target:
            raise _Reached


def train_sample(sample: int, samples: int) -> Train:
    """A function that trains on the first `sample` samples with simulated workers until the accuracy is reached."""

    def train(workload: Workload, strategy: Strategy, workers: int, target: float) -> Learned:
        from paceline.simulation.durations import DurationDistribution
        from paceline.simulation.virtual_cluster import VirtualCluster
        from paceline.training.virtual_run import run_virtual

        watch, status = _Watch(target), "not reached"
        if sample < samples:
            workload = replace(workload, data=first_samples(workload.data, sample))
        try:
            run_virtual(
                replace(workload, precision="float32"), strategy, workers=workers,
                cluster=VirtualCluster(compute=DurationDistribution(*COMPUTE)), watcher=watch,
            )  # fmt: skip
        except _Reached:
            status = "reached"
        except Diverged:
            status = "diverged"
        epochs = watch.passes * sample / samples if status == "reached" else math.nan
        return Learned(strategy.name, workers, workload.batch, status, epochs, watch.best, watch.passes)

    return train


def first_samples(data: str, count: int) -> str:
    """The data source limited to its first `count` samples."""
    from paceline.data.source import parse, without_count

    text = without_count(parse(data))
    return f"{text}{'&' if '?' in text else '?'}first={count}"
