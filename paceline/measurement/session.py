"""Decides which iterations are instrumented, keeps their samples, and times the others untouched."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from math import ceil, gcd
from statistics import median
from time import perf_counter_ns

from torch import nn

from paceline.measurement.mark_log import MarkLog, SpanKey
from paceline.measurement.module_marks import ModuleMarks
from paceline.measurement.sampling_window import COLD_AFTER, COLD_S, FULL_WINDOW_EVERY, sampling_window
from paceline.measurement.shapes import ShapeRecorder
from paceline.trace import Trace

SAMPLE_EVERY = 40
WARM_UP = 5
KEEP_SAMPLES = 1_000
MIN_SAMPLES = 20
CHECK_OVERHEAD_EVERY = 10
"""Sampling windows between two checks of the overhead."""
MAX_OVERHEAD = 0.01
MAX_EVERY = 1_000
KEEP_ITERATIONS = 100_000
MIN_NEIGHBOURS, MAX_NEIGHBOURS, NEIGHBOUR_SPAN_S = 2, 8, 0.05
"""A sample is compared with up to `MAX_NEIGHBOURS` untouched iterations on either side, within `NEIGHBOUR_SPAN_S`."""


@dataclass(frozen=True)
class Sample:
    """One instrumented iteration."""

    number: int
    spans_s: dict[SpanKey, float]
    wall_s: float


@dataclass
class Session:
    """The state of a running measurement. `cost_s` is what each kind of mark costs outside its own readings."""

    model: nn.Module
    cost_s: dict[str, float]
    every: int = SAMPLE_EVERY
    warm_up: int = WARM_UP
    samples: list[Sample] = field(default_factory=list)
    walls: list[tuple[int, float, bool]] = field(default_factory=list)
    last_log: MarkLog | None = None
    trace: Trace | None = None
    """The trace of a sampled iteration, where it has more than its log."""
    hidden_s: float = 0.0
    """Communication that overlapped with computing in a sampled iteration; exposed communication is a part."""
    backwards: int = 0
    number: int = 0
    first_key: SpanKey = ("other", "")
    modules: bool = True
    """Whether modules are called; a hand-written gradient has its own marks."""
    period: int = 1
    """Iterations per epoch: samples should not fall on the same few batches of every epoch."""
    stride: int = 1
    """Iterations that each sample averages."""
    shapes_known: bool = False
    """If not, the first iteration, which is warm-up, records the layers' shapes."""
    log: MarkLog | None = None
    _began: int | None = None
    _untouched_until: int = 0
    """Before this iteration only durations are recorded."""
    _window_start: int = 0
    """The current or next sampling window: its first iteration, the first recorded one, and the last."""
    _window_recorded_from: int = 0
    _window_end: int = 0
    _window_logs: list[tuple[int, int, MarkLog]] = field(default_factory=list)
    """Number, nanoseconds and log of its iterations so far. They are processed when the window is over, because
    processing them in between would slow down the next iteration."""
    _last_window_end: int = 0
    """The first iteration after the last window."""
    _windows: int = 0
    """Windows so far, their iterations, how long these took, and how long installing marks took."""
    _instrumented: int = 0
    _instrumented_ns: int = 0
    _setup_ns: int = 0
    _wall_every: int = 1
    _sample_every: int = 1

    def __post_init__(self) -> None:
        self.shapes = ShapeRecorder(self.model)
        self.marks = ModuleMarks(self.model, self._current_log)
        self.extra_marks: list[Callable[[MarkLog], ExitStack]] = []
        """Marks in addition to those at modules, installed for one iteration at a time."""
        self._stack = ExitStack()

    def _current_log(self) -> MarkLog:
        assert self.log is not None
        return self.log

    def begin(self) -> None:
        """Starts timing, at the beginning and after any pause."""
        self.close()
        if not self.shapes_known:
            self.warm_up = max(1, self.warm_up)
        self._prepare_next()

    def _prepare_next(self) -> None:
        if self.number == 0 and not self.shapes_known:
            self._stack.enter_context(self.shapes.recording())
        self._plan_window()
        if self.number >= self._window_start:
            self.log = MarkLog()
            if self.modules:
                self._stack.enter_context(self.marks.installed())
            for extra_marks in self.extra_marks:
                self._stack.enter_context(extra_marks(self.log))
        self._began = perf_counter_ns()
        if self.log is not None:
            self.log.mark("edge", self.first_key)

    def _plan_window(self) -> None:
        """Plans the next window, or what is left of an interrupted one."""
        window = sampling_window(self.every)
        past = max(0, -(-(self.number - self.first_sample - window.kept + 1) // self.every))
        self._window_recorded_from = self.first_sample + past * self.every
        self._window_start = self._window_recorded_from - window.warmup
        self._window_end = self._window_recorded_from + window.kept - 1
        room = KEEP_ITERATIONS - len(self.walls) - 1
        self._untouched_until = min(self._window_start - 1, self.number + room) if self._wall_every == 1 else 0

    def skippable(self) -> int:
        """How many iterations from here on need not be timed: where windows are rare, only neighbours are needed."""
        if self.every < FULL_WINDOW_EVERY or self.number < self._last_window_end + COLD_AFTER + MAX_NEIGHBOURS:
            return 0
        return max(0, self._window_start - MAX_NEIGHBOURS - self.number)

    def skip(self, count: int) -> None:
        """Skips `count` iterations that were not timed; the next one begins now."""
        self.number += count
        self._began = perf_counter_ns() if self._began is not None else None

    def neighbours(self, typical_s: float) -> tuple[int, int]:
        """How many untouched iterations on either side a sample is compared with, and how many to skip after a window.

        A window of one iteration runs with caches almost as cold as the two iterations after it, so those are half of
        its neighbours. A long window warms up first: it has many neighbours, and skips those two.
        """
        if self.every < FULL_WINDOW_EVERY:
            return MIN_NEIGHBOURS, 0
        return max(
            MIN_NEIGHBOURS, min(MAX_NEIGHBOURS, round(NEIGHBOUR_SPAN_S / typical_s))
        ), COLD_AFTER if typical_s < COLD_S else 0

    def overhead(self, untouched_s: float) -> float:
        """The cost of measuring, relative to a run without it."""
        extra_s = (self._instrumented_ns + self._setup_ns) * 1e-9 - self._instrumented * untouched_s
        return extra_s / (max(1, self.number) * untouched_s)

    @property
    def current(self) -> int | None:
        """The number of the current iteration; None before the first that counts."""
        return self.number

    @property
    def first_sample(self) -> int:
        """The number of iterations before the first sample."""
        return self.warm_up + self.every // 2

    def mark(self, key: SpanKey) -> None:
        """From now on time belongs to `key`; does nothing in an untouched iteration."""
        if self.log is not None:
            self.log.mark("edge", key)

    def end_iteration(self, count: int = 1) -> None:
        """Ends an iteration, or `count` of them on a device that takes several at once.

        An iteration whose beginning was not seen does not count.
        """
        log, number, began = self.log, self.number, self._began
        if log is not None:
            log.mark("edge", ("other", ""))
        ended = perf_counter_ns()
        if began is None:
            self.begin()
        elif log is not None:
            self._window_logs.append((number, ended - began, log.drain()))
            self.backwards += self.marks.backwards if number >= self._window_recorded_from else 0
            self.marks.forget()
            self.number = number + 1
            if number >= self._window_end:
                self._end_window(ended)
            else:
                self._began = perf_counter_ns()
                log.mark("edge", self.first_key)
        elif number < self._untouched_until and number >= self.warm_up:
            # The fast path: most iterations come here, and a short one must not be slowed down.
            self.walls.append((number, (ended - began) * 1e-9, False))
            self.number = number + 1
            self._began = perf_counter_ns()
        else:
            self._stack.close()
            if number >= self.warm_up:
                near = (
                    number >= self._window_start - MAX_NEIGHBOURS
                    or number < self._last_window_end + COLD_AFTER + MAX_NEIGHBOURS
                )
                self._keep_wall(number, (ended - began) * 1e-9, False, near)
            self.number = number + 1
            self._prepare_next()
            if self.log is not None:
                self._setup_ns += perf_counter_ns() - ended

    def _end_window(self, ended: int) -> None:
        self.log = None
        self._stack.close()
        self._process_logs()
        self._last_window_end = self.number
        self._reduce_sampling()
        self._setup_ns += perf_counter_ns() - ended
        self._prepare_next()

    def _process_logs(self) -> None:
        for number, nanoseconds, log in self._window_logs:
            if number >= self.warm_up:
                self._keep_wall(number, nanoseconds * 1e-9, True, near=True)
            if number >= self._window_recorded_from:
                self._keep_sample(Sample(number, log.durations_s(self.cost_s), log.wall_s()))
                self.last_log = log
            self._instrumented_ns += nanoseconds
        self._instrumented += len(self._window_logs)
        self._windows += bool(self._window_logs)
        self._window_logs = []

    def _reduce_sampling(self) -> None:
        """Once there are enough samples, limits the overhead to `MAX_OVERHEAD`."""
        if len(self.samples) < MIN_SAMPLES or self._windows % CHECK_OVERHEAD_EVERY:
            return
        untouched = [seconds for _, seconds, was in self.walls[-1000:] if not was]
        if not untouched:
            return
        typical = median(untouched)
        every = min(MAX_EVERY, ceil(self.overhead(typical) * self.number / self._windows / MAX_OVERHEAD))
        if every > self.every:
            every = max(every, FULL_WINDOW_EVERY)  # where sampling is expensive: rare but long windows
            while gcd(every, self.period) > 1:
                every += 1
            self.every = every

    def close(self) -> None:
        """Stops timing until the next `begin`."""
        self._stack.close()
        self._process_logs()
        self.log = self._began = None

    def finish(self) -> None:
        """Waits for pending events. Called before the samples are read."""

    def _keep_wall(self, number: int, seconds: float, sampled: bool, near: bool) -> None:
        """Keeps sampled iterations and their neighbours, and thins out the others as the run gets longer."""
        if near or number % self._wall_every == 0:
            self.walls.append((number, seconds, sampled))
        if len(self.walls) >= KEEP_ITERATIONS:
            self._wall_every *= 2
            wanted = {
                s.number + d for s in self.samples for d in range(-MAX_NEIGHBOURS, MAX_NEIGHBOURS + COLD_AFTER + 1)
            }
            self.walls = [w for w in self.walls if w[0] % self._wall_every == 0 or w[0] in wanted]

    def _keep_sample(self, sample: Sample) -> None:
        if len(self.samples) >= KEEP_SAMPLES:
            self.samples = self.samples[::2]
            self._sample_every *= 2
        if (sample.number // self.every) % self._sample_every == 0:
            self.samples.append(sample)
