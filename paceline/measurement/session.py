"""Decides which iterations are instrumented, keeps their samples, and times the others untouched."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from math import ceil
from time import perf_counter_ns

from torch import nn

from paceline.measurement.kept_iterations import KeptIterations
from paceline.measurement.mark_log import LOOP, VALIDATE, MarkLog, SpanKey
from paceline.measurement.module_marks import ModuleMarks
from paceline.measurement.overhead import FIRST_WINDOWS, MAX_OVERHEAD, OverheadLog
from paceline.measurement.samples import ENOUGH, Sample
from paceline.measurement.sampling_window import COLD_S, FULL_WINDOW_EVERY, WindowPlan
from paceline.measurement.shapes import ShapeRecorder
from paceline.measurement.thinned_list import ThinnedList
from paceline.trace import Span, Trace

SAMPLE_EVERY = 4
"""Iterations per sampling window at first; after `FIRST_WINDOWS` windows, `MAX_OVERHEAD` limits how often they come."""
WARM_UP = 5
KEEP_SAMPLES = 1_000
CHECK_OVERHEAD_EVERY = 10
"""Sampling windows between two checks of the overhead."""
RARE, MAX_EVERY = 40, 1_000
TIMED_BESIDE = 8
"""Iterations timed singly on each side of a window, where those between two windows are otherwise timed together."""
TRACED_SPANS, TRACED_ITERATIONS = 2_000, 5
"""The trace has the last sampled iterations, up to these limits."""


@dataclass
class Session:
    """The state of a running measurement. `cost_s` is what each kind of mark costs outside its own readings."""

    model: nn.Module
    cost_s: dict[str, float]
    every: int = SAMPLE_EVERY
    warm_up: int = WARM_UP
    samples: ThinnedList[Sample] = field(default_factory=lambda: ThinnedList(KEEP_SAMPLES))
    coarse: ThinnedList[Sample] = field(default_factory=lambda: ThinnedList(KEEP_SAMPLES))
    """Samples with marks at every layer, and those of windows with marks between the parts only."""
    walls: KeptIterations = field(default_factory=KeptIterations)
    untouched: int = 0
    """Untouched iterations, and their time: all of them, also where `walls` has only some."""
    untouched_ns: int = 0
    validation_ns: int = 0
    """Evaluations inside iterations; they belong to none of them."""
    hidden_s: float = 0.0
    """Communication that overlapped with computing in a sampled iteration; exposed communication is a part."""
    launches: float = 0.0
    kernels_alone_s: list[float] = field(default_factory=list)
    """Device time of iterations whose kernels ran one after another, by events alone; `launches` are theirs."""
    kernels_traced_s: list[float] = field(default_factory=list)
    """The kernels of iterations in traces, which have to agree with that."""
    backwards: int = 0
    number: int = 0
    first_key: SpanKey = LOOP
    modules: bool = True
    """Whether modules are called; a hand-written gradient has its own marks."""
    layers: bool = True
    """Whether anything shows where a layer ends."""
    stride: int = 1
    """Iterations that each sample averages."""
    shapes_known: bool = False
    """If not, the first iteration, which is warm-up, records the layers' shapes."""
    log: MarkLog | None = None
    on_window: Callable[[], object] | None = None
    """Called after a sampling window; its time belongs to no iteration."""
    _began: int | None = None
    _validated_ns: int = 0
    """Evaluations in the current iteration."""
    _untouched_until: int = 0
    """Before this iteration only durations are recorded."""
    _window_logs: list[tuple[int, int, MarkLog]] = field(default_factory=list)
    """Number, nanoseconds and log of the window's iterations so far. They are processed when the window is over,
    because processing them in between would slow down the next iteration."""
    _last_window_end: int = 0
    """The first iteration after the last window."""
    _is_coarse: bool = False
    """Whether the current window has marks between the parts only."""

    def __post_init__(self) -> None:
        self.densest = self.every
        self.overhead = OverheadLog()
        self.shapes = ShapeRecorder(self.model)
        self.marks = ModuleMarks(self.model, self._current_log)
        self.extra_marks: list[Callable[[MarkLog], ExitStack]] = []
        """Marks in addition to those at modules, installed for one window at a time."""
        self.traced: deque[tuple[int, MarkLog]] = deque()
        self._plan = WindowPlan()
        self._stack = ExitStack()

    def _current_log(self) -> MarkLog:
        assert self.log is not None
        return self.log

    @property
    def _compares(self) -> bool:
        """Whether there are windows of both kinds. Where gradients are exchanged, only marks at layers see it."""
        return self.layers and not self.marks.communicates

    @property
    def timing(self) -> bool:
        """Whether an iteration is being timed."""
        return self._began is not None

    def begin(self) -> None:
        """Starts timing, at the beginning and after any pause."""
        self.close()
        if not self.shapes_known:
            self.warm_up = max(1, self.warm_up)
        self._prepare_next()

    def alternate(self) -> None:
        """Samples half of all iterations: for runs whose only purpose is to be measured."""
        self.every = self.densest = self._plan.alternate()

    def restart(self) -> None:
        """Discards everything so far: the loop turns out to have longer iterations. Timing stops until `begin`."""
        self.close()
        self.number = self.untouched = self.untouched_ns = self.validation_ns = self.backwards = 0
        self.samples, self.coarse, self.walls = ThinnedList(KEEP_SAMPLES), ThinnedList(KEEP_SAMPLES), KeptIterations()
        self._last_window_end, self._is_coarse = 0, False
        self.shapes_known, self._plan = False, WindowPlan(self._plan.share)
        self.traced.clear()

    def _prepare_next(self) -> None:
        if self.number == 0 and not self.shapes_known:
            self._stack.enter_context(self.shapes.recording())
        self._plan.next_cycle = max(self._plan.next_cycle, self.warm_up)
        self._window = self._plan.at(self.number, self.every, self.untouched_s(default=0.0) < COLD_S)
        self._untouched_until = min(self._window.start - 1, self.number + self.walls.room)
        if self.number >= self._window.start:
            self.log = MarkLog(coarse=self._is_coarse)
            if self.modules:
                self._stack.enter_context(self.marks.installed(coarse=self._is_coarse))
            for extra_marks in self.extra_marks:
                self._stack.enter_context(extra_marks(self.log))
        self._validated_ns = 0
        self._began = perf_counter_ns()
        if self.log is not None:
            self.log.mark("edge", self.first_key)

    def untouched_s(self, default: float) -> float:
        """The mean of the untouched iterations so far."""
        return self.untouched_ns * 1e-9 / self.untouched if self.untouched else default

    @property
    def cycle(self) -> int:
        """Iterations from one sampling window to the next, at first."""
        return self.densest

    def skippable(self) -> int:
        """How many iterations from here on need not be timed one by one: windows are rare, and none is near."""
        if self.every < FULL_WINDOW_EVERY or self.number < self._last_window_end + TIMED_BESIDE:
            return 0
        return max(0, self._window.start - TIMED_BESIDE - self.number)

    def skip(self, count: int) -> None:
        """Counts `count` untouched iterations, from the beginning of the current one until now; the next begins now."""
        self.number += count
        if self._began is not None:
            now = perf_counter_ns()
            self.untouched += count
            self.untouched_ns += now - self._began
            self._began = now

    @property
    def current(self) -> int | None:
        """The number of the current iteration; None before the first that counts."""
        return self.number

    def mark(self, key: SpanKey) -> None:
        """From now on time belongs to `key`; does nothing in an untouched iteration."""
        if self.log is not None:
            self.log.mark("edge", key)

    def validated(self, nanoseconds: int) -> None:
        """An evaluation of this length took place in the current iteration; it does not belong to it."""
        self._validated_ns += nanoseconds
        self.validation_ns += nanoseconds

    def end_iteration(self, count: int = 1) -> None:
        """Ends an iteration, or `count` of them on a device that takes several at once.

        An iteration whose beginning was not seen does not count.
        """
        log, number, began = self.log, self.number, self._began
        if log is not None:
            log.mark("edge", LOOP)
        ended = perf_counter_ns()
        if began is None:
            self.begin()
            return
        took = ended - began - self._validated_ns
        self._validated_ns = 0
        if log is not None:
            self._window_logs.append((number, took, log.drain()))
            self.backwards += self.marks.backwards if number >= self._window.recorded_from else 0
            self.marks.forget()
            self.number = number + 1
            if number >= self._window.end:
                self._end_window(ended)
            else:
                self._began = perf_counter_ns()
                log.mark("edge", self.first_key)
        elif number < self._untouched_until and number >= self.warm_up:
            # The fast path: most iterations come here, and a short one must not be slowed down.
            self.walls.append((number, took * 1e-9, False))
            self.untouched += 1
            self.untouched_ns += took
            self.number = number + 1
            self._began = perf_counter_ns()
        else:
            self._stack.close()
            self.shapes_known = True
            if number >= self.warm_up:
                self.untouched += 1
                self.untouched_ns += took
                self.walls.keep(number, took * 1e-9, False)
            self.number = number + 1
            self._prepare_next()
            if self.log is not None:
                self.overhead.instrumented_s += (perf_counter_ns() - ended) * 1e-9

    def _end_window(self, ended: int) -> None:
        self.log = None
        self._stack.close()
        self._process_logs()
        self._last_window_end = self.number
        # Short windows with marks at every layer come first, then the two kinds take turns.
        turns = self._plan.alternates or self.overhead.windows >= ENOUGH
        self._is_coarse = self._compares and turns and not self._is_coarse
        self._adjust_sampling()
        if self.on_window is not None:
            self.on_window()
        self.overhead.instrumented_s += (perf_counter_ns() - ended) * 1e-9
        self._prepare_next()

    def _process_logs(self) -> None:
        for number, nanoseconds, log in self._window_logs:
            if number >= self.warm_up:
                self.walls.keep(number, nanoseconds * 1e-9, True)
            if number >= self._window.recorded_from:
                self._keep_sample(number, log)
            self.overhead.instrumented_s += nanoseconds * 1e-9
        self.overhead.instrumented += len(self._window_logs)
        self.overhead.windows += bool(self._window_logs)
        self._window_logs = []

    def _adjust_sampling(self) -> None:
        """Once there are enough samples, samples as often as `MAX_OVERHEAD` allows."""
        windows, enough = self.overhead.windows, (2 if self._compares else 1) * FIRST_WINDOWS
        if self._plan.alternates or windows < enough or windows % CHECK_OVERHEAD_EVERY or not self.untouched:
            return
        each_s = self.untouched_s(default=0.0)
        every = ceil(self.overhead.window_s(each_s) / (MAX_OVERHEAD * each_s))
        if every >= RARE and each_s < COLD_S:
            every = max(every, FULL_WINDOW_EVERY)  # where sampling is expensive: rare but long windows
        self.every = max(self.densest, min(MAX_EVERY, every))

    def close(self) -> None:
        """Stops timing until the next `begin`; the iteration under way does not count."""
        self._stack.close()
        self._process_logs()
        self.log = self._began = None

    def finish(self) -> None:
        """Waits for pending events. Called before the samples are read."""

    def trace(self, who: str) -> Trace:
        """The last sampled iterations, one after another."""
        spans: list[Span] = []
        for number, log in self.traced:
            spans += log.spans(who, self.cost_s, spans[-1].end_s if spans else 0.0, f"iteration {number}")
        return Trace(tuple(spans))

    def _keep_sample(self, number: int, log: MarkLog) -> None:
        spans_s = log.durations_s(self.cost_s)
        wall_s = log.wall_s() - spans_s.pop(VALIDATE, 0.0)
        sample = Sample(number, spans_s, wall_s, self._window.weight, log.costs_s(self.cost_s))
        if self._is_coarse:
            self.coarse.keep(sample)
            return
        self.samples.keep(sample)
        self.traced.append((number, log))
        while len(self.traced) > 1 and (
            len(self.traced) > TRACED_ITERATIONS or sum(len(kept.marks) for _, kept in self.traced) > TRACED_SPANS
        ):
            self.traced.popleft()
