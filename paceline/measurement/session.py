"""Decides which iterations are instrumented, keeps what they gave, and times all the others untouched."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from math import ceil, gcd
from statistics import median
from time import perf_counter_ns

from torch import nn

from paceline.measurement.look import COLD_AFTER, COLD_S, FULL, look_of
from paceline.measurement.module_marks import ModuleMarks
from paceline.measurement.shapes import ShapeWatch
from paceline.measurement.tape import Owner, Tape
from paceline.trace import Trace

SAMPLE_EVERY = 40
WARM_UP = 5
KEEP_SAMPLES = 1_000
ENOUGH_SAMPLES = 20
RECKON_AFTER = 10
"""Looks; to reckon what they cost has its cost too."""
MOST_OVERHEAD = 0.01
RAREST = 1_000
KEEP_ITERATIONS = 100_000
FEW, REACH, REACH_S = 2, 8, 0.05
"""So many untouched iterations on either side are a sample's neighbours, fewer where they would be that long ago."""


@dataclass(frozen=True)
class Sample:
    """One instrumented iteration."""

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
    _quiet_until: int = 0
    """Up to there nothing is to be done but to note how long iterations take."""
    _starts_at: int = 0
    """The look under way or to come: its first iteration, the first that counts, and its last."""
    _counts_from: int = 0
    _ends_with: int = 0
    _looked: list[tuple[int, int, Tape]] = field(default_factory=list)
    """Number, nanoseconds and tape of its iterations so far. They are worked through when it is over: that between two
    of them would make the next one slower."""
    _last_look: int = 0
    """The first iteration after it."""
    _looks: int = 0
    """So far; iterations of theirs, and how long they and putting marks in place took."""
    _touched: int = 0
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

    def _prepare_next(self) -> None:
        if self.number == 0 and not self.shapes_known:
            self._stack.enter_context(self.shapes.watching())
        self._plan_look()
        if self.number >= self._starts_at:
            self.tape = Tape()
            if self.modules:
                self._stack.enter_context(self.marks.installed())
            for extra in self.extra:
                self._stack.enter_context(extra(self.tape))
        self._began = perf_counter_ns()
        if self.tape is not None:
            self.tape.mark("edge", self.first_owner)

    def _plan_look(self) -> None:
        """The next look, or what is left of the one that was broken off."""
        look = look_of(self.every)
        past = max(0, -(-(self.number - self.first_sample - look.kept + 1) // self.every))
        self._counts_from = self.first_sample + past * self.every
        self._starts_at = self._counts_from - look.settling
        self._ends_with = self._counts_from + look.kept - 1
        room = KEEP_ITERATIONS - len(self.walls) - 1
        self._quiet_until = min(self._starts_at - 1, self.number + room) if self._wall_every == 1 else 0

    def stretch(self) -> int:
        """So many iterations from here on need not be noticed at all: where looks are rare, neighbours are enough."""
        if self.every < FULL or self.number < self._last_look + COLD_AFTER + REACH:
            return 0
        return max(0, self._starts_at - REACH - self.number)

    def pass_over(self, count: int) -> None:
        """So many went by unnoticed; the next one begins now."""
        self.number += count
        self._began = perf_counter_ns() if self._began is not None else None

    def neighbours(self, typical_s: float) -> tuple[int, int]:
        """How many untouched iterations on either side a sample is compared with, and how many after a look are not.

        A look at one iteration finds the caches almost as cold as the two iterations after it do, so these are half of
        its neighbours. A long look settles first: its neighbours are many, and none of those two.
        """
        if self.every < FULL:
            return FEW, 0
        return max(FEW, min(REACH, round(REACH_S / typical_s))), COLD_AFTER if typical_s < COLD_S else 0

    def overhead(self, untouched_s: float) -> float:
        """What looking has cost, relative to a run without it."""
        extra_s = (self._touched_ns + self._looking_ns) * 1e-9 - self._touched * untouched_s
        return extra_s / (max(1, self.number) * untouched_s)

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
        tape, number, began = self.tape, self.number, self._began
        if tape is not None:
            tape.mark("edge", ("other", ""))
        ended = perf_counter_ns()
        if began is None:
            self.begin()
        elif tape is not None:
            self._looked.append((number, ended - began, tape.taken()))
            self.backwards += self.marks.backwards if number >= self._counts_from else 0
            self.marks.forget()
            self.number = number + 1
            if number >= self._ends_with:
                self._end_look(ended)
            else:
                self._began = perf_counter_ns()
                tape.mark("edge", self.first_owner)
        elif number < self._quiet_until and number >= self.warm_up:
            # Most iterations are of this kind, and a short one should not notice.
            self.walls.append((number, (ended - began) * 1e-9, False))
            self.number = number + 1
            self._began = perf_counter_ns()
        else:
            self._stack.close()
            if number >= self.warm_up:
                near = number >= self._starts_at - REACH or number < self._last_look + COLD_AFTER + REACH
                self._keep_wall(number, (ended - began) * 1e-9, False, near)
            self.number = number + 1
            self._prepare_next()
            if self.tape is not None:
                self._looking_ns += perf_counter_ns() - ended

    def _end_look(self, ended: int) -> None:
        self.tape = None
        self._stack.close()
        self._read_tapes()
        self._last_look = self.number
        self._look_less()
        self._looking_ns += perf_counter_ns() - ended
        self._prepare_next()

    def _read_tapes(self) -> None:
        for number, nanoseconds, tape in self._looked:
            if number >= self.warm_up:
                self._keep_wall(number, nanoseconds * 1e-9, True, near=True)
            if number >= self._counts_from:
                self._keep_sample(Sample(number, tape.durations_s(self.cost_s), tape.wall_s()))
                self.last_tape = tape
            self._touched_ns += nanoseconds
        self._touched += len(self._looked)
        self._looks += bool(self._looked)
        self._looked = []

    def _look_less(self) -> None:
        """With enough samples, what looking costs is kept to a hundredth of the time."""
        if len(self.samples) < ENOUGH_SAMPLES or self._looks % RECKON_AFTER:
            return
        untouched = [seconds for _, seconds, was in self.walls[-1000:] if not was]
        if not untouched:
            return
        typical = median(untouched)
        every = min(RAREST, ceil(self.overhead(typical) * self.number / self._looks / MOST_OVERHEAD))
        if every > self.every:
            every = max(every, FULL)  # where looking is dear, rarely and then for long
            while gcd(every, self.period) > 1:
                every += 1
            self.every = every

    def close(self) -> None:
        """Nothing is watched until the next `begin`."""
        self._stack.close()
        self._read_tapes()
        self.tape = self._began = None

    def finish(self) -> None:
        """Before the samples are read: what is still on its way is waited for."""

    def _keep_wall(self, number: int, seconds: float, sampled: bool, near: bool) -> None:
        """Sampled iterations and those near them are wanted; of the many others, fewer as the run goes on."""
        if near or number % self._wall_every == 0:
            self.walls.append((number, seconds, sampled))
        if len(self.walls) >= KEEP_ITERATIONS:
            self._wall_every *= 2
            wanted = {s.number + d for s in self.samples for d in range(-REACH, REACH + COLD_AFTER + 1)}
            self.walls = [w for w in self.walls if w[0] % self._wall_every == 0 or w[0] in wanted]

    def _keep_sample(self, sample: Sample) -> None:
        if len(self.samples) >= KEEP_SAMPLES:
            self.samples = self.samples[::2]
            self._sample_every *= 2
        if (sample.number // self.every) % self._sample_every == 0:
            self.samples.append(sample)
