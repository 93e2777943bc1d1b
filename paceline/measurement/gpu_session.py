"""A measurement on a GPU. It times blocks of iterations, because a GPU runs asynchronously and overlaps single ones.

Most blocks are untouched: a CUDA event at either end, read after it has completed. At the start a few blocks measure
how much tracing slows down the host, and one block with marks attributes kernels to modules. After that a block is
traced now and then without marks, which gives busy and idle time layer by layer. Each traced block is compared with
its untouched neighbours: device time for the result, host time for the cost of tracing.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from math import ceil
from statistics import median
from time import perf_counter

import torch
from torch import nn

from paceline.measurement.block_events import BlockEvents
from paceline.measurement.block_kernels import KernelKeys, busy_s, iteration_trace, loading_in, reliable_keys
from paceline.measurement.block_lengths import BlockLengths
from paceline.measurement.kernel_order import KernelOrder
from paceline.measurement.kernel_tracer import KernelTracer
from paceline.measurement.kernels import Kernel, keys_by_launch
from paceline.measurement.mark_log import LOOP, MarkLog
from paceline.measurement.overhead import FIRST_WINDOWS, MAX_OVERHEAD
from paceline.measurement.session import KEEP_SAMPLES, Session
from paceline.measurement.slowdown import HostTimes
from paceline.measurement.thinned_list import ThinnedList
from paceline.measurement.traced_block import KernelTimes, TracedBlock, samples_of
from paceline.trace import Trace

SAMPLED_SHARE = 40
"""In a long run at most one block in this many is traced."""
MIN_EVERY = 3
"""A traced block needs untouched blocks on both sides."""
MIN_BLOCKS, MIN_CAPTURED_BLOCKS = 30, 6
"""Enough that one slow moment of the machine does not dominate; captured iterations hardly depend on the host."""
KEEP_BLOCKS = 100
PRELUDE = ("host alone", "host traced", "marked", "stalled")
TRACES = ("host traced", "marked", "traced")


class GpuSession(Session):
    """A session that measures blocks of iterations, `stride` at a time.

    `captured` iterations run as CUDA graphs, whose kernels `order` attributes to modules.
    """

    def __init__(
        self,
        model: nn.Module,
        device: torch.device,
        *,
        stride: int = 1,
        every: int = SAMPLED_SHARE,
        order: KernelOrder | None = None,
        captured: bool = False,
    ) -> None:
        super().__init__(model, {}, every=max(2, every), warm_up=0)
        self.stride = stride
        self.device, self.order, self.captured = device, order, captured
        self.lengths = BlockLengths(stride, captured)
        self.min_blocks = MIN_CAPTURED_BLOCKS if captured else MIN_BLOCKS
        self.tracer = KernelTracer(device, detach=not captured)
        self._kinds = self.lengths.prelude()
        self._planned: int | None = None
        self._kind = ""
        self._block = 0
        self._done = self._length = 0
        self._start = self._first_done = 0.0
        """When the host began the current block, and when it finished the first iteration, which is not typical."""
        self._alone_s: list[float] = []
        self._pairs: list[HostTimes] = []
        self._blocks = ThinnedList[TracedBlock](KEEP_BLOCKS)
        self._before_s: float | None = None
        """Host time per iteration of the last untouched block, or None if the host waited for the device."""
        self._needs_after: TracedBlock | None = None
        self._events, self.launches = BlockEvents(), 0.0
        self._logs: list[MarkLog] = []
        self._last_traced: tuple[MarkLog, list[Kernel], KernelKeys] | None = None
        self._iteration = ExitStack()
        self._marked_last = False
        self.light_marks: list[Callable[[MarkLog], ExitStack]] = []
        """The few marks a traced block has: they attribute what is launched outside a graph."""

    @property
    def current(self) -> int | None:
        return self.number + self._done if self._block else None

    @property
    def min_iterations(self) -> int:
        """The fewest iterations that give `FIRST_WINDOWS` samples."""
        return (2 * FIRST_WINDOWS if self.stride == 1 else FIRST_WINDOWS) * self.lengths.default

    def restart(self) -> None:
        super().restart()
        self._kinds, self._block, self._kind, self._events = self.lengths.prelude(), 0, "", BlockEvents()
        self._alone_s, self._pairs, self._blocks = [], [], ThinnedList(KEEP_BLOCKS)

    def plan(self, iterations: int) -> None:
        self._planned = iterations  # enough blocks, at most one in forty
        self.every = max(MIN_EVERY, min(SAMPLED_SHARE, iterations // self.lengths.default // self.min_blocks))

    def sample_every(self, blocks: int) -> None:
        """Traces one block in `blocks`."""
        self.every = blocks
        self._block = ceil(self._block / blocks) * blocks

    @property
    def cycle(self) -> int:
        return self.lengths.cycle(self.every)

    @property
    def timing(self) -> bool:
        return self._kind != ""

    def validated(self, nanoseconds: int) -> None:
        """The device's time for an evaluation cannot be told from that of its block, which does not count then."""
        self.validation_ns += nanoseconds
        self.close()

    def begin(self) -> None:
        self.close()
        if not self.shapes_known:
            self._stack.enter_context(self.shapes.recording())
        self._begin_block()

    def close(self) -> None:
        """Discards the current block."""
        self._iteration.close()
        self._stack.close()
        if self._kind not in ("", "untouched", "recovering"):
            self._kinds.appendleft(self._kind)  # repeat it later
        if self._kind in TRACES:
            self.tracer.stop()
        self._kind, self.log, self._before_s, self._needs_after = "", None, None, None

    def _next_kind(self) -> str:
        if self._kinds:
            return self._kinds.popleft()
        self._block += 1
        if self._block % self.every != self.every // 2:
            return "untouched"
        self._marked_last = self.order is None and not self._marked_last
        return "marked" if self._marked_last else "traced"  # alternates as long as the kernel order varies

    def _begin_block(self) -> None:
        self._kind, self._done, self._logs = self._next_kind(), 0, []
        self._length = self.lengths.length(self._kind, self.launches)
        self._start = perf_counter()
        if self._kind == "untouched":
            self._events.begin()
        elif self._kind in ("host alone", "host traced", "stalled"):
            torch.cuda.synchronize(self.device)
        if self._kind == "stalled":
            self._events.begin_stalled(self._length * median(self._alone_s))
        if self._kind in TRACES:
            self.tracer.start()
        self._begin_iteration()

    def _begin_iteration(self) -> None:
        if self._kind not in ("marked", "traced"):
            return
        self.log = MarkLog()
        if self._kind == "marked":
            self._iteration.enter_context(self.marks.installed())
        for extra_marks in self.extra_marks if self._kind == "marked" else self.light_marks:
            self._iteration.enter_context(extra_marks(self.log))
        self.log.mark("edge", self.first_key)

    def end_iteration(self, count: int = 1) -> None:
        if not self._kind:
            self.begin()
            return
        if self.log is not None:
            self.log.mark("edge", LOOP)
            self._iteration.close()
            self.backwards += self.marks.backwards if self._kind == "marked" else 0
            self._logs.append(self.log)
            self.log = None
        if not self._done:
            self._first_done = perf_counter()
            self._stack.close()  # the shapes of one iteration are known
        self._done += count
        if self._done < self._length:
            if self._kind == "untouched" and self._length - self._done <= count:
                self._events.last_iteration()
            self._begin_iteration()
            return
        self._end_block()
        self._begin_block()

    def _end_block(self) -> None:
        kind, ended = self._kind, perf_counter()
        settled_s = (ended - self._first_done) / max(1, self._done - self.stride)
        if kind == "warm-up":
            self.shapes_known = True
        elif kind == "host alone":
            self._alone_s.append(settled_s)
            torch.cuda.synchronize(self.device)
            self.lengths.adapt_to((perf_counter() - self._first_done) / max(1, self._done - self.stride))
            if self._planned is not None:
                self.plan(self._planned)
        elif kind == "host traced":
            self.tracer.stop(keep_attached=True)
            self._pairs.append(HostTimes(settled_s, median(self._alone_s)))
        elif kind == "stalled":
            self._events.end_stalled(self._done)
        elif kind == "recovering":
            self.number += self._done if self._block else 0
        elif kind == "untouched":
            self._end_untouched((ended - self._start) / self._done)
        else:
            self._process_trace(self.tracer.stop(), settled_s, marked=kind == "marked")
            self._kinds.append("recovering")
            if self.on_window is not None:
                self._read_samples()
                self.on_window()
        if not self._block and kind in PRELUDE:
            self.overhead.add_prelude(self._done, perf_counter() - self._start)

    def _end_untouched(self, host_s: float) -> None:
        """Records a block. If the device has already begun the last iteration, it keeps up with the host, so the host's
        time is the time to launch kernels and can be compared with that of a traced block."""
        self._before_s = host_s if self._events.end(self.number, self._done) else None
        if self._needs_after is not None:
            self._needs_after.after_s, self._needs_after = self._before_s, None
        self._read_events()
        self.number += self._done

    def _read_events(self, wait: bool = False) -> None:
        for first, count, seconds in self._events.read(wait):
            self.untouched += count
            self.untouched_ns += round(1e9 * seconds)
            for i in range(count):
                self.walls.keep(first + i, seconds / count, sampled=False)

    def finish(self) -> None:
        self._read_events(wait=True)
        self.tracer.restore_environment()
        self._read_samples()

    def _read_samples(self) -> None:
        self.kernels_alone_s, self.kernels_traced_s = self._events.alone_s, [b.kernels_s for b in self._blocks]
        samples = samples_of(self._blocks, self._pairs)
        self.samples[:] = samples[:: max(1, ceil(len(samples) / KEEP_SAMPLES))]

    def trace(self, who: str) -> Trace:
        return iteration_trace(*self._last_traced, who) if self._last_traced is not None else Trace()

    def _process_trace(self, kernels: list[Kernel], host_s: float, marked: bool) -> None:
        if kernels:  # else the profiler returned nothing; another block follows
            self.launches = len({kernel.launched for kernel in kernels}) / self._done
            by_launch = keys_by_launch(kernels, self._logs)
            if marked and self.order is None:
                self.order = KernelOrder.learned(kernels, by_launch)
            if self._block:  # else it belongs to the prelude
                self._keep_block(kernels, by_launch, host_s, marked)
        seconds = perf_counter() - self._start
        if self._block:
            for i in range(self._done):
                self.walls.keep(self.number + i, seconds / self._done, sampled=True)
            self.overhead.add_window(self._done, seconds)
            self.number += self._done
        sampled = sum(len(block.busy) for block in self._blocks) * self.stride
        if len(self._blocks) >= self.min_blocks and sampled >= FIRST_WINDOWS:
            self._limit_overhead(seconds)

    def _keep_block(self, kernels: list[Kernel], by_launch: KernelKeys, host_s: float, marked: bool) -> None:
        keys, alike = by_launch, {number for number, _ in by_launch}
        if not marked:
            windows = (self._done, self.stride) if self.captured else None
            keys, alike = reliable_keys(kernels, by_launch, self.order, windows)
        busy, hidden_s = busy_s(kernels, keys)
        self.hidden_s = hidden_s / max(1, self._done)
        numbers = [number for number, _ in keys]
        block = TracedBlock(
            first=self.number,
            stride=self.stride,
            busy={number: busy[number] for number in sorted(alike)[1:]},  # the first started on an idle device
            timings=None if marked else KernelTimes(kernels, numbers),
            loading=loading_in(self._logs),
            weight=float(self.every),
            host_s=host_s,
            launches=self.launches,
            kernels_s=sum(kernel.end - kernel.start for kernel in kernels) * 1e-9 / self._done,
            before_s=self._before_s,
        )
        self._needs_after, self._last_traced = block, (self._logs[-1], kernels, keys)
        if not alike:
            self.order = None  # the kernels have changed: marks are needed again
        self._blocks.keep(block)

    def _limit_overhead(self, block_s: float) -> None:
        """Once there are enough samples, limits the overhead to `MAX_OVERHEAD`."""
        if self.untouched:
            each_s = self.untouched_s(default=0.0)
            extra_s = block_s - self._done * each_s
            self.every = max(self.every, ceil(extra_s / (MAX_OVERHEAD * self.lengths.default * each_s)))
