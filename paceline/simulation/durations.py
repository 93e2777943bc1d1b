"""Durations in virtual seconds: a distribution given as text, or any function of (worker, number)."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from paceline.errors import StrategyError

Duration = Callable[[int, int], float]
"""Maps a worker and how many durations it had before to seconds."""

SHAPES = {
    "constant": ("SECONDS",),
    "gamma": ("SHAPE", "SCALE"),
    "pareto": ("SHAPE", "MEAN"),
    "lognormal": ("SIGMA", "MEAN"),
}
DRAWN_AT_ONCE = 64


@dataclass(frozen=True)
class DurationDistribution:
    """A distribution of durations, such as `gamma:100:0.01`."""

    name: str
    numbers: tuple[float, ...] = ()
    recorded: tuple[float, ...] = ()

    @property
    def mean_s(self) -> float:
        if self.recorded:
            return math.fsum(self.recorded) / len(self.recorded)
        return self.numbers[0] * self.numbers[1] if self.name == "gamma" else self.numbers[-1]

    def draw(self, generator: np.random.Generator, first: int, count: int, start: int) -> Sequence[float]:
        """The next durations of a worker that had `first` before; recorded ones are repeated from `start` on."""
        if self.recorded:
            return [self.recorded[(start + first + i) % len(self.recorded)] for i in range(count)]
        if self.name == "constant":
            return [self.numbers[0]] * count
        a, b = self.numbers
        if self.name == "gamma":
            values = generator.gamma(a, b, count)
        elif self.name == "pareto":
            values = (1.0 + generator.pareto(a, count)) * (b * (a - 1.0) / a)
        else:
            values = generator.lognormal(math.log(b) - a * a / 2, a, count)
        drawn: list[float] = values.tolist()
        return drawn


def parse_distribution(text: str, option: str) -> DurationDistribution:
    """A number of seconds, or one of the distributions above, or recorded:FILE one number per line or a JSON list."""
    name, *words = text.split(":")
    if name == "recorded":
        return DurationDistribution("recorded", recorded=_recorded(text.partition(":")[2], option))
    if not words and _numbers([name]):
        name, words = "constant", [name]
    if name not in SHAPES:
        known = ", ".join(":".join((shape, *parts)) for shape, parts in SHAPES.items())
        raise StrategyError(f"`{option}={text!r}` should be {known} or recorded:FILE")
    numbers, may_be_zero = _numbers(words), name == "constant"
    if len(numbers) != len(SHAPES[name]) or min(numbers) < 0 or (0 in numbers and not may_be_zero):
        form, least = ":".join((name, *SHAPES[name])), "of at least" if may_be_zero else "above"
        raise StrategyError(f"`{option}={text!r}` should be {form} with numbers {least} 0")
    if name == "pareto" and numbers[0] <= 1:
        raise StrategyError(f"`{option}={text!r}`: a pareto shape of {numbers[0]:g} has no mean; use one above 1")
    return DurationDistribution(name, numbers)


def _numbers(words: Sequence[str]) -> tuple[float, ...]:
    """The words as finite numbers; none if one of them is not."""
    try:
        numbers = tuple(float(word) for word in words)
    except ValueError:
        return ()
    return numbers if all(map(math.isfinite, numbers)) else ()


def _recorded(place: str, option: str) -> tuple[float, ...]:
    try:
        text = Path(place).read_text(encoding="utf-8")
        found = json.loads(text) if text.lstrip().startswith("[") else text.split()
        values = tuple(float(value) for value in found)
    except OSError as error:
        raise StrategyError(f"`{option}`: recorded:{place}: {error.strerror or error}") from error
    except (ValueError, TypeError) as error:
        raise StrategyError(f"`{option}`: recorded:{place} should hold numbers, one per line: {error}") from error
    if not values or not all(math.isfinite(v) and v >= 0 for v in values):
        raise StrategyError(f"`{option}`: recorded:{place} should hold durations of at least 0, and at least one")
    return values


class DurationSampler:
    """Durations of many workers. Each has its own random numbers, independent of the others'."""

    def __init__(
        self, given: DurationDistribution | Duration | None, seed: int, purpose: int, speeds: tuple[float, ...] = ()
    ) -> None:
        self.given, self.seed, self.purpose, self.speeds = given, seed, purpose, speeds
        self.zero = given is None or given == DurationDistribution("constant", (0.0,))
        self._ready: dict[int, list[float]] = {}
        self._had: dict[int, int] = {}
        self._generators: dict[int, tuple[np.random.Generator, int]] = {}

    def next(self, worker: int) -> float:
        ready = self._ready.get(worker)
        return ready.pop() if ready else self._refilled(worker)

    def _refilled(self, worker: int) -> float:
        had = self._had.get(worker, 0)
        speed = self.speeds[worker % len(self.speeds)] if self.speeds else 1.0
        if self.given is None:
            return 0.0
        if not isinstance(self.given, DurationDistribution):
            self._had[worker] = had + 1
            seconds = self.given(worker, had)
            if not (isinstance(seconds, int | float) and math.isfinite(seconds) and seconds >= 0):
                raise StrategyError(f"a duration should be a number of at least 0, not {seconds!r} for worker {worker}")
            return seconds / speed
        if worker not in self._generators:
            generator = np.random.default_rng([self.purpose, self.seed, worker])
            start = int(generator.integers(len(self.given.recorded))) if self.given.recorded else 0
            self._generators[worker] = generator, start
        generator, start = self._generators[worker]
        drawn = self.given.draw(generator, had, DRAWN_AT_ONCE, start)
        self._had[worker] = had + DRAWN_AT_ONCE
        ready = self._ready[worker] = [seconds / speed for seconds in reversed(drawn)]
        return ready.pop()
