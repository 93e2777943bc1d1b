"""Decides which iterations are instrumented, keeps what they gave, and times all the others untouched."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from math import ceil, gcd
from statistics import median
from time import perf_counter_ns

from torch import nn

from paceline.measure.module_marks import ModuleMarks
from paceline.measure.shapes import ShapeWatch
from paceline.measure.tape import Owner, Tape
from paceline.trace import Trace

SAMPLE_EVERY = 40
WARM_UP = 5
KEEP_SAMPLES = 1_000
ENOUGH_SAMPLES = 20
MOST_OVERHEAD = 0.01
RAREST = 1_000
KEEP_ITERATIONS = 100_000


@dataclass(frozen=True)
class Sample:
    """One instrumented iteration, and how long its untouched neighbours took."""

    number: int
    owners: dict[Owner, float]
    wall_s: float


@dataclass
class Session:
    """The state of a measurement while it runs. `cost_s` is what marks cost outside themselves."""

    model: nn.Module
    cost_s: dict[str, float]
    every: int = SAMPLE_EVERY
    warm_up: int = WARM_UP
    samples: list[Sample] = field(default_factory=list)
    walls: list[tuple[int, float, bool]] = field(default_factory=list)
    last_tape: Tape | None = None
    trace: Trace | None = None
    """Of a sampled iteration, where it is more than its tape tells."""
    hidden_s: float = 0.0
    """Communication beside computing, of a sampled iteration; what is not hidden is a part of its own."""
    backwards: int = 0
    number: int = 0
    first_owner: Owner = ("other", "")
    modules: bool = True
    """Whether modules are called at all; a gradient that is written out has marks of its own."""
    period: int = 1
    """Iterations of an epoch: samples should not fall on the same few places of it."""
    stride: int = 1
    """How many iterations a sample is the mean of."""
    shapes_known: bool = False
    """Otherwise the first iteration, which is warm-up, tells the layers' shapes."""
    tape: Tape | None = None
    _began: int | None = None
    _look_at: int = 0
    _touched: int = 0
    """Iterations with marks in place, and how long they and putting marks in place took."""
    _touched_ns: int = 0
    _looking_ns: int = 0
    _wall_every: int = 1
    _sample_every: int = 1

    def __post_init__(self) -> None:
        self.shapes = ShapeWatch(self.model)
        self.marks = ModuleMarks(self.model, self._the_tape)
        self.extra: list[Callable[[Tape], ExitStack]] = []
        """Marks beside those at modules, for one iteration at a time."""
        self._stack = ExitStack()

    def _the_tape(self) -> Tape:
        assert self.tape is not None
        return self.tape

    def begin(self) -> None:
        """Before the first iteration, and after any pause: what was since the last one is no part of an iteration."""
        self.close()
        if not self.shapes_known:
            self.warm_up = max(1, self.warm_up)
        self._prepare_next()

    def _is_sampled(self, number: int) -> bool:
        return number >= self.warm_up and (number - self.warm_up) % self.every == self.every // 2

    def _is_prepared(self, number: int) -> bool:
        """Putting marks in place leaves the caches cold, so it is done an iteration before the one that counts."""
        return self.every >= 4 and self._is_sampled(number + 1)

    def _prepare_next(self) -> None:
        if self.number == 0 and not self.shapes_known:
            self._stack.enter_context(self.shapes.watching())
        if self._is_prepared(self.number) or (self._is_sampled(self.number) and self.tape is None):
            self.tape = Tape()
            if self.modules:
                self._stack.enter_context(self.marks.installed())
            for extra in self.extra:
                self._stack.enter_context(extra(self.tape))
        if self.tape is not None:
            self.tape.mark("edge", self.first_owner)
        self._look_at = self._next_look()
        self._began = perf_counter_ns()

    def _next_look(self) -> int:
        """The next iteration that marks are put in place for, or one before it; never one after it."""
        after = self.warm_up + self.every // 2
        if self.number >= after:
            after += ((self.number - after) // self.every + 1) * self.every
        return min(after - 1, self.number + KEEP_ITERATIONS - len(self.walls) - 1)

    @property
    def current(self) -> int | None:
        """The number of the iteration under way; None before the first that counts."""
        return self.number

    @property
    def first_sample(self) -> int:
        """How many iterations come before the first that is looked into."""
        return self.warm_up + self.every // 2

    def mark(self, owner: Owner) -> None:
        """From now on the time is `owner`'s; nothing happens in an untouched iteration."""
        if self.tape is not None:
            self.tape.mark("edge", owner)

    def end_iteration(self, count: int = 1) -> None:
        """After the last thing an iteration does (`count`: that many at once, on a device that takes them so).

        One whose beginning was not seen does not count.
        """
        ended = perf_counter_ns()
        if self._began is None:
            self.begin()
            return
        number = self.number
        if self.warm_up <= number < self._look_at - 1 and self.tape is None and self._wall_every == 1:
            # Nothing to do: most iterations are of this kind, and a short one should not notice.
            self.walls.append((number, (ended - self._began) * 1e-9, False))
            self.number = number + 1
            self._began = perf_counter_ns()
            return
        sampled = self.tape is not None
        if self.tape is not None and self._is_sampled(self.number):
            self.tape.mark("edge", ("other", ""))
            self.backwards += self.marks.backwards
            self._keep_sample(Sample(self.number, self.tape.durations_s(self.cost_s), self.tape.wall_s()))
            self.last_tape, self.tape = self.tape, None
            self._stack.close()
        elif self.tape is not None:
            self.tape.marks.clear()
            self.marks.forget()
        else:
            self._stack.close()
        near = any(self._is_sampled(self.number + d) for d in (-1, 0, 1))
        if self.number >= self.warm_up:
            self._keep_wall(self.number, (ended - self._began) * 1e-9, sampled, near)
        if sampled:
            self._touched_ns += ended - self._began
            self._touched += 1
        self.number += 1
        self._prepare_next()
        if sampled or self.tape is not None:
            self._looking_ns += perf_counter_ns() - ended
        if sampled and self.tape is None:
            self._look_less()

    def _look_less(self) -> None:
        """With enough samples, what looking costs is kept to a hundredth of the time."""
        untouched = [seconds for _, seconds, was in self.walls[-1000:] if not was]
        if len(self.samples) < ENOUGH_SAMPLES or not untouched:
            return
        typical = median(untouched)
        extra = (self._touched_ns + self._looking_ns) * 1e-9 - self._touched * typical
        count = max(1, self._touched // (2 if self.every >= 4 else 1))
        every = max(self.every, min(RAREST, ceil(extra / count / (MOST_OVERHEAD * typical))))
        while every > self.every and gcd(every, self.period) > 1:
            every += 1
        self.every = every

    def close(self) -> None:
        """Nothing is watched until the next `begin`."""
        self._stack.close()
        self.tape = self._began = None

    def finish(self) -> None:
        """Before the samples are read: what is still on its way is waited for."""

    def _keep_wall(self, number: int, seconds: float, sampled: bool, near: bool) -> None:
        """Sampled iterations and those near them are wanted; of the many others, fewer as the run goes on."""
        if near or number % self._wall_every == 0:
            self.walls.append((number, seconds, sampled))
        if len(self.walls) >= KEEP_ITERATIONS:
            self._wall_every *= 2
            kept = {s.number for s in self.samples}
            self.walls = [w for w in self.walls if w[0] % self._wall_every == 0 or kept & {w[0] - 1, w[0], w[0] + 1}]

    def _keep_sample(self, sample: Sample) -> None:
        if len(self.samples) >= KEEP_SAMPLES:
            self.samples = self.samples[::2]
            self._sample_every *= 2
        if (sample.number // self.every) % self._sample_every == 0:
            self.samples.append(sample)
