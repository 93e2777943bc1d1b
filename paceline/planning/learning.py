"""How many epochs each way of training needs to an accuracy: trained in virtual time on a sample of the data.

What carries over from a sample to all data is the number of samples seen, not the number of passes: an epoch of all
data shows more of them, and none twice. So epochs = passes * samples of the sample / samples of all.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from paceline.errors import Diverged, InputError, PacelineError
from paceline.planning.candidate import ONE_PROCESS, Candidate, joins_batches, kind_of
from paceline.planning.plan import Learned
from paceline.strategy.strategy import Strategy
from paceline.training.run import Epoch, Run
from paceline.training.watcher import Silent
from paceline.workload import Workload

SAMPLE = 10_000
"""Training samples; fewer are all."""
MOST_TRAININGS = 24
SMALLER_BATCH = 0.5
"""The least share of the workload's samples to accuracy that a smaller batch needs."""
STALER = 0.9
"""The least share of a gentler way's samples that another way needs."""
COMPUTE = ("gamma", (100.0, 0.01))
"""Of a step: the usual noise, so that workers meet in ever new orders."""

Train = Callable[[Workload, Strategy, int, float], Learned]
Way = tuple[Strategy, int, int]
"""A strategy, workers and batch."""


class Learning:
    """Learns when asked, each way once. `train` takes a workload, a strategy, workers and the accuracy."""

    def __init__(self, workload: Workload, target: float, samples: int, train: Train | None = None) -> None:
        self.workload, self.target, self.samples = workload, target, samples
        self.sample = min(samples, SAMPLE)
        self._train = train or train_sample(self.sample, samples)
        self._results: dict[Way, Learned] = {}
        self._first: Learned | None = None

    @property
    def results(self) -> tuple[Learned, ...]:
        return tuple(self._results.values())

    @property
    def sample_words(self) -> str:
        """What was trained on."""
        if self.sample == self.samples:
            return f"all {self.samples:,} training samples"
        return f"the first {self.sample:,} of {self.samples:,} training samples"

    def result(self, candidate: Candidate) -> Learned:
        return self._results[_way(candidate)]

    def known(self, candidate: Candidate) -> bool:
        return _way(candidate) in self._results

    def least(self, candidate: Candidate) -> float:
        """As was learned; or at the least, from gentler ways that were."""
        if self.known(candidate):
            return self.result(candidate).epochs
        first = self._baseline()
        least = first.epochs * (SMALLER_BATCH if candidate.batch < self.workload.batch else STALER)
        gentler = [STALER * found.epochs for found in self._gentler(_way(candidate)) if found.status == "reached"]
        return max([least, *gentler])

    def why_not(self, candidate: Candidate) -> str:
        """What failed with fewer samples under way is not tried with more."""
        way = _way(candidate)
        found = [self._results[way]] if way in self._results else self._gentler(way)
        if failed := [one for one in found if one.status != "reached"]:
            return "diverge" if failed[0].status == "diverged" else f"do not reach {self.target:.4g}"
        if way in self._results:
            return ""
        if way[1] * way[2] > self.sample:
            return "have more samples under way than there are to learn from"
        return f"were not trained: {MOST_TRAININGS} others were" if len(self._results) >= MOST_TRAININGS else ""

    def find(self, candidate: Candidate) -> None:
        """Learns of a candidate, or first of one process with its batch: what that cannot, nobody can."""
        way = _way(candidate)
        alone = (ONE_PROCESS, 1, candidate.batch)
        if alone not in self._results and candidate.batch >= self.workload.batch:
            way = alone
        if way not in self._results:
            self._results[way] = self._train(replace(self.workload, batch=way[2]), way[0], way[1], self.target)

    def _gentler(self, way: Way) -> list[Learned]:
        """Fewer workers, a smaller batch, or one process; less than the workload's batch says nothing of more."""
        kind = kind_of(way[0])
        return [
            found for (strategy, workers, batch), found in self._results.items()
            if (kind_of(strategy) == kind or workers == 1) and workers <= way[1]
            and self.workload.batch <= batch <= way[2]
        ]  # fmt: skip

    def _baseline(self) -> Learned:
        """The workload as it is, which the others are compared with."""
        if self._first is None:
            found = self._train(self.workload, ONE_PROCESS, 1, self.target)
            if found.status != "reached":
                raise PacelineError(
                    f"{self.target:.4g} is not reached in {self.workload.epochs} passes over {self.sample_words} "
                    f"(best {found.accuracy:.4f}): ask for less, or for more epochs with --set epochs=…"
                )
            self._first = self._results[ONE_PROCESS, 1, self.workload.batch] = found
        return self._first


def _way(candidate: Candidate) -> Way:
    """What one process with the joined batch computes, a synchronous group does too."""
    strategy = candidate.strategy
    if candidate.workers == 1 or joins_batches(strategy):
        return ONE_PROCESS, 1, candidate.workers * candidate.batch
    return strategy, candidate.workers, candidate.batch


class _Reached(Exception):
    pass


class _Watch(Silent):
    """Ends the training when the accuracy is there."""

    def __init__(self, target: float) -> None:
        self.target, self.best, self.passes = target, 0.0, 0

    def begun(self, run: Run, notes: list[str]) -> None:
        pass

    def finished_epoch(self, epoch: Epoch, run: Run) -> None:
        self.passes = epoch.epoch
        if math.isnan(epoch.test_accuracy):
            raise InputError("--target-accuracy needs data with classes: this workload has no accuracy")
        self.best = max(self.best, epoch.test_accuracy)
        if epoch.test_accuracy >= self.target:
            raise _Reached


def train_sample(sample: int, samples: int) -> Train:
    """Trains the first so many of the samples with simulated workers, until the accuracy is reached."""

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
    """A data source, cut to its first samples."""
    from paceline.data.source import parse, without_count

    text = without_count(parse(data))
    return f"{text}{'&' if '?' in text else '?'}first={count}"
