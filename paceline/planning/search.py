"""Finds the candidate with the lowest value with few simulations, by best-first search.

Each candidate has a lower bound: computing without any exchange, and the closed form times the lowest ratio of
simulation to closed form found for such candidates. The candidate with the lowest bound is refined (predicted,
simulated, trained) until the lowest one is final. Bounds are learned, not proven: tests compare with simulating
everything.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from paceline.planning.candidate import ONE_PROCESS, PRECISIONS, Candidate, strategy_kind
from paceline.planning.candidates import Listed
from paceline.planning.estimate import alone_s, core_slowdown, estimated_step_s, machines_needed
from paceline.planning.forecast import LOWER_BOUND, Forecast, Key
from paceline.planning.memory_fit import fits, shares_fit
from paceline.planning.objective import Numbers
from paceline.planning.protocols import DividedResult, Epochs, Simulate, SimulationResult, SingleWorker
from paceline.strategy.strategy import Strategy

Mask = npt.NDArray[np.bool_]
Value = Callable[[Numbers, Numbers], Numbers]

TOO_LARGE = "do not fit in memory"
UNSIMULATED = 0.85
"""Lowest ratio of simulation to closed form, while no candidate of the kind was simulated."""
SIMULATED = 0.985
"""Factor for the noise of a mean over a few hundred simulated steps."""
TOTAL_STEPS = 4000
MIN_STEPS, MAX_STEPS = 24, 200
ONE_WORKER = (replace(ONE_PROCESS, name="one worker"), False)
"""The kind whose closed form is exact."""


class Search:
    def __init__(
        self,
        listed: Listed,
        forecast: Forecast,
        simulate: Simulate,
        epochs: Epochs,
        *,
        samples: int,
        spot: bool,
        machine_hours: bool,
        limit: int = 0,
        repeat_dropped: bool = True,
    ) -> None:
        """At most `limit` candidates are simulated; the limit may be changed later.

        `repeat_dropped`: whether an epoch continues until all samples were applied.
        """
        self.candidates, self.places = listed.candidates, listed.places
        self.forecast, self.simulate, self.epochs = forecast, simulate, epochs
        self.limit = limit
        self.excluded: Counter[str] = Counter(listed.excluded)
        self.outcomes: dict[int, SimulationResult] = {}
        self.simulations = 0
        self._spot, self._machine_hours, self._samples = spot, machine_hours, samples
        self._repeat_dropped = repeat_dropped
        count = len(self.candidates)
        self.alive: Mask = np.ones(count, dtype=bool)
        self.predicted: Mask = np.zeros(count, dtype=bool)
        self.simulated: Mask = np.zeros(count, dtype=bool)
        self._alone: Mask = np.array([c.needs_no_simulation for c in self.candidates], dtype=bool)
        self.sure: Mask = np.zeros(count, dtype=bool)
        self._rounds = np.array([self._rounds_of(c) for c in self.candidates])
        """Steps per epoch and worker."""
        self._alone_s, self._estimated_s, self._epoch_s = (np.zeros(count) for _ in range(3))
        """Time of an epoch without exchange, by the closed form, and as simulated."""
        self._epochs = np.zeros(count)
        self._rate = np.array(
            [self._rate_of(i, machines_needed(c, self.places[i])) for i, c in enumerate(self.candidates)]
        )
        """Money per second."""
        kinds = {kind: number for number, kind in enumerate(dict.fromkeys(map(_kind, self.candidates)))}
        self._kind = np.array([kinds[_kind(c)] for c in self.candidates], dtype=int)
        self._least = np.array([1.0 if kind == ONE_WORKER else UNSIMULATED for kind in kinds])
        self._usual = np.ones(len(kinds))
        self._found: dict[int, list[float]] = {}
        """By kind: ratios of simulation to closed form."""
        self._by_key: dict[Key, list[int]] = {}
        for i in range(count):
            self._by_key.setdefault(self.key_of(i), []).append(i)
        for key in self._by_key:
            self._estimate(key)
        self._count_epochs()
        self.staleness_rank = _staleness_rank(self.candidates)

    # Bounds and estimates

    def bounds(self) -> tuple[Numbers, Numbers]:
        """Lower bounds for seconds and money of all epochs; exact for final candidates."""
        return self._times(SIMULATED * self._alone_s, self._least)

    def expected(self) -> tuple[Numbers, Numbers]:
        """Expected seconds and money of all epochs."""
        return self._times(self._alone_s, self._usual, np.where(self.predicted, 1.0, 1 / LOWER_BOUND))

    def _times(self, alone_s: Numbers, ratios: Numbers, factors: Numbers | float = 1.0) -> tuple[Numbers, Numbers]:
        unsure = factors * np.maximum(alone_s, self._estimated_s * ratios[self._kind])
        time_s = np.where(self.simulated, self._epoch_s, unsure) * self._epochs
        return time_s, time_s * self._rate

    def time_and_money(self, number: int) -> tuple[float, float]:
        time_s = float(self._epoch_s[number] * self._epochs[number])
        return time_s, time_s * float(self._rate[number])

    def key_of(self, number: int) -> Key:
        """The key of its prediction."""
        candidate = self.candidates[number]
        return self.places[number].device, candidate.batch, candidate.precision

    def epochs_of(self, number: int) -> float:
        return float(self._epochs[number])

    # Finding

    def least(self, value: Value, among: Mask) -> int | None:
        """The candidate with the lowest value; None if all are infinite.

        Refines the expected best first, then all that could be better, until none is left or the limit is reached.
        """
        self._first(value, among, self.expected)
        return self._first(value, among, self.bounds)

    def _first(self, value: Value, among: Mask, known: Callable[[], tuple[Numbers, Numbers]]) -> int | None:
        """Refines the lowest until it is final."""
        while True:
            values = np.where(among & self.alive, value(*known()), np.inf)
            values[~self.within_reach()] = np.inf
            best = int(np.argmin(values)) if len(values) else 0
            if not len(values) or not math.isfinite(values[best]):
                return None
            if self.sure[best]:
                return best
            self.refine(best)

    def less_stale(self, number: int, value: Value, among: Mask, tolerance: float, tries: int) -> int:
        """A candidate that is hardly worse and closer to training in one process; makes at most `tries`."""
        most = float(value(*(np.array([x]) for x in self.time_and_money(number)))[0]) * (1 + tolerance)
        for _ in range(tries):
            good = among & self.alive & self.within_reach() & (value(*self.expected()) <= most)
            good &= self.staleness_rank < self.staleness_rank[number]
            if not good.any():
                return number
            best = int(np.argmin(np.where(good, self.staleness_rank, np.iinfo(np.int64).max)))
            if self.sure[best]:
                return best
            self.refine(best)
        return number

    def within_reach(self) -> Mask:
        """Candidates that are simulated or may still be."""
        return self.simulated | self._alone | (self.simulations < self.limit)

    def refine(self, number: int) -> None:
        """Takes the next step for a candidate: predict, simulate or train."""
        candidate = self.candidates[number]
        if not self.predicted[number]:
            self._predict(self.key_of(number))
        elif not self.simulated[number]:
            self._simulate(number)
        if self.alive[number] and self.simulated[number]:
            if not self.epochs.known(candidate.undivided) and not self.sure[number]:
                self.epochs.find(candidate.undivided)
                self._count_epochs()
            self.sure[number] = self.alive[number] and self.epochs.known(candidate.undivided)

    def settle(self, number: int) -> bool:
        """Refines a candidate until it is final, if the limit allows; returns whether it is still a candidate."""
        while self.alive[number] and not self.sure[number]:
            if not self.within_reach()[number]:
                return False
            self.refine(number)
        return bool(self.alive[number])

    # Refinement

    def _estimate(self, key: Key) -> None:
        numbers, device = self._by_key[key], key[0]
        estimate = self.forecast.estimate(*key)
        if estimate is None:
            failure = self.forecast.failures[device, self.forecast.workload.batch, self.forecast.workload.precision]
            self._exclude(numbers, f"cannot be predicted: {failure.replace(device.name, 'it')}")
            return
        self.predicted[numbers] = estimate.predicted
        too_large = []
        for i in numbers:
            candidate, place = self.candidates[i], self.places[i]
            if candidate.is_divided:
                self._estimate_divided(i)
                continue
            if not fits(candidate, place, estimate.memory_bytes, estimate.computing.parameter_bytes):
                too_large.append(i)
                continue
            self._alone_s[i] = alone_s(candidate, estimate.computing) * self._rounds[i]
            self._estimated_s[i] = estimated_step_s(candidate, place, estimate.computing) * self._rounds[i]
        self._exclude(too_large, TOO_LARGE)

    def _estimate_divided(self, number: int) -> None:
        """Predicted at once: there are few, and only where the network does not fit one device."""
        made = self.forecast.divided(self.candidates[number], self.places[number])
        if isinstance(made, str):
            self._exclude([number], f"cannot be divided: {made}")
        elif not shares_fit(self.places[number], made.shares_bytes):
            self._exclude([number], TOO_LARGE)
        else:
            self._alone_s[number] = self._estimated_s[number] = made.step_s * self._rounds[number]

    def _predict(self, key: Key) -> None:
        self.forecast.predict(*key)
        if key in self.forecast.failures:
            self._exclude(self._by_key[key], f"cannot be predicted in {key[2]}")
        else:
            self._estimate(key)

    def _simulate(self, number: int) -> None:
        candidate, place = self.candidates[number], self.places[number]
        prediction = self.forecast.predictions[self.key_of(number)]
        if candidate.is_divided:
            made = self.forecast.divided(candidate, place)
            assert not isinstance(made, str), "it was predicted before"
            outcome: SimulationResult = DividedResult(made, prediction.iteration_s)
        elif self._alone[number]:
            outcome = SingleWorker(prediction, core_slowdown(candidate, place, prediction.threads))
        else:
            self.simulations += 1
            outcome = self.simulate(
                prediction, place.machine, candidate.workers, candidate.strategy, network=place.network,
                workers_per_machine=candidate.workers_per_machine, steps=steps_of(candidate),
            )  # fmt: skip
        self.outcomes[number] = outcome
        self.simulated[number] = True
        epoch_s = self._epoch_s[number] = self._epoch_of(candidate, outcome)
        self._rate[number] = self._rate_of(number, outcome.machines)
        kind = self._kind[number]
        found = self._found.setdefault(kind, [])
        found.append(epoch_s / max(self._estimated_s[number], 1e-12))
        self._least[kind] = (1.0 if self._alone[number] else SIMULATED) * min(1.0, *found)
        self._usual[kind] = float(np.median(found))

    def _count_epochs(self) -> None:
        """Updates the epochs of all candidates; may rule some out."""
        for i in map(int, np.flatnonzero(self.alive)):
            learned_as = self.candidates[i].undivided
            why = self.epochs.why_not(learned_as)
            self._exclude([i] if why else [], why)
            self._epochs[i] = 0.0 if why else self.epochs.least(learned_as)

    def _exclude(self, numbers: list[int], reason: str) -> None:
        gone = [i for i in numbers if self.alive[i]]
        if gone:
            self.excluded[reason] += len(gone)
            self.alive[gone] = False

    def _rounds_of(self, candidate: Candidate) -> float:
        """Steps per epoch and worker; rounded up for synchronous groups."""
        steps = -(-self._samples // candidate.batch) / candidate.copies
        steps = math.ceil(steps) if candidate.strategy.groups == 1 else steps
        if self._repeat_dropped:
            steps *= candidate.copies / (candidate.copies - candidate.strategy.backup_workers)
        return steps

    def _epoch_of(self, candidate: Candidate, outcome: SimulationResult) -> float:
        if not (self._repeat_dropped and candidate.strategy.backup_workers):
            return outcome.epoch_s
        return max(outcome.epoch_s, self._samples / outcome.samples_per_s)

    def _rate_of(self, number: int, machines: int) -> float:
        price = 1.0 if self._machine_hours else self.places[number].price_per_hour(self._spot)
        return machines * (price or 0.0) / 3600


def steps_of(candidate: Candidate) -> int:
    """Steps to simulate per worker: fewer with many workers, and enough for two exchanges."""
    steps = max(MIN_STEPS, min(MAX_STEPS, TOTAL_STEPS // candidate.workers))
    return max(steps, 2 * candidate.strategy.push_every)


def _kind(candidate: Candidate) -> tuple[Strategy, bool]:
    """Groups candidates whose closed forms have similar errors."""
    kind = strategy_kind(candidate.strategy), candidate.machines > 1
    return ONE_WORKER if candidate.needs_no_simulation else kind


def _staleness_rank(candidates: tuple[Candidate, ...]) -> npt.NDArray[np.int64]:
    """Ranks candidates by staleness; the lowest is closest to exact training in one process."""
    keys = [
        (c.samples_in_flight, not c.waits_for_all, PRECISIONS.index(c.precision), c.workers) for c in candidates
    ]  # fmt: skip
    ranks = {key: rank for rank, key in enumerate(sorted(set(keys)))}
    return np.array([ranks[key] for key in keys], dtype=np.int64)
