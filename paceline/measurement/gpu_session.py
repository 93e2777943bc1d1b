"""A measurement on a GPU. It times blocks of iterations, because a GPU runs asynchronously and overlaps single ones.

Most blocks are untouched: a CUDA event at either end, read after it has completed. At the start a few blocks measure
how much tracing slows down the host, and one block with marks attributes kernels to modules. After that a block is
traced now and then without marks, which gives busy and idle time layer by layer. Each traced block is compared with
its untouched neighbours: device time for the result, host time for the cost of tracing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from math import ceil
from statistics import median
from time import perf_counter

import torch
from torch import nn

from paceline.measurement.block_kernels import KernelKeys, busy_s, iteration_trace, keys_by_order, loading_in
from paceline.measurement.block_lengths import BlockLengths
from paceline.measurement.kernel_order import KernelOrder
from paceline.measurement.kernel_tracer import KernelTracer
from paceline.measurement.kernels import Kernel, keys_by_launch
from paceline.measurement.mark_log import MarkLog
from paceline.measurement.session import KEEP_SAMPLES, MAX_OVERHEAD, MIN_NEIGHBOURS, MIN_SAMPLES, Session
from paceline.measurement.slowdown import HostTimes
from paceline.measurement.traced_block import KernelTimes, TracedBlock, samples_of

SAMPLED_SHARE = 40
"""In a long run at most one block in this many is traced."""
MIN_EVERY = 3
"""A traced block needs untouched blocks on both sides."""
PAIRS = 4
"""Pairs of blocks with and without tracing that measure the cost of tracing at the start."""
MIN_BLOCKS, MIN_CAPTURED_BLOCKS = 30, 6
"""Enough that one slow moment of the machine does not dominate; captured iterations hardly depend on the host."""
KEEP_BLOCKS = 100
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
        pairs = 1 if captured else PAIRS  # a graph is launched rarely
        prelude = ["host alone"] * pairs + ["host traced"] * pairs + ["marked"] * (not captured)
        self._kinds: deque[str] = deque(["warm-up", *prelude])
        self._planned: int | None = None
        self._kind = ""
        self._block = 0
        self._done = self._length = 0
        self._start = self._first_done = 0.0
        """When the host began the current block, and when it finished the first iteration, which is not typical."""
        self._alone_s: list[float] = []
        self._pairs: list[HostTimes] = []
        self._blocks: list[TracedBlock] = []
        self._blocks_seen, self._keep_every = 0, 1
        self._before_s: float | None = None
        """Host time per iteration of the last untouched block, or None if the host waited for the device."""
        self._needs_after: TracedBlock | None = None
        self._event: torch.cuda.Event | None = None
        self._last_begun: torch.cuda.Event | None = None
        self._pending: deque[tuple[int, int, torch.cuda.Event, torch.cuda.Event]] = deque()
        self._logs: list[MarkLog] = []
        self._last_traced: tuple[MarkLog, list[Kernel]] | None = None
        self._iteration = ExitStack()
        self._marked_last = False
        self.light_marks: list[Callable[[MarkLog], ExitStack]] = []
        """The few marks a traced block has: they attribute what is launched outside a graph."""

    @property
    def current(self) -> int | None:
        return self.number + self._done if self._block else None

    @property
    def min_iterations(self) -> int:
        """The fewest iterations that give `MIN_SAMPLES` samples."""
        return (2 * MIN_SAMPLES if self.stride == 1 else MIN_SAMPLES) * self.lengths.default

    @property
    def first_sample(self) -> int:
        return (len(self._kinds) + self.every // 2) * self.lengths.default

    # Sampling rate

    def plan(self, iterations: int) -> None:
        """Chooses the sampling rate for a run of about `iterations`: enough blocks, at most one in forty."""
        self._planned = iterations
        self.every = max(MIN_EVERY, min(SAMPLED_SHARE, iterations // self.lengths.default // self.min_blocks))

    def sample_every(self, blocks: int) -> None:
        """From now on traces one block in `blocks`, the first after half as many."""
        self.every = blocks
        self._block = ceil(self._block / blocks) * blocks

    def neighbours(self, typical_s: float) -> tuple[int, int]:
        return MIN_NEIGHBOURS, 0  # all iterations of a block have its mean, and a pause follows a traced block

    def overhead(self, untouched_s: float) -> float:
        return sum(seconds for _, seconds, _ in self.walls) / (max(1, len(self.walls)) * untouched_s) - 1.0

    # The life of a block

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
        self._length = self.lengths.length(self._kind)
        self._start = perf_counter()
        if self._kind == "untouched":
            self._event, self._last_begun = torch.cuda.Event(enable_timing=True), None
            self._event.record()
        elif self._kind.startswith("host"):
            torch.cuda.synchronize(self.device)
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
            self.log.mark("edge", ("other", ""))
            self._iteration.close()
            self.backwards += self.marks.backwards if self._kind == "marked" else 0
            self._logs.append(self.log)
            self.log = None
        if not self._done:
            self._first_done = perf_counter()
        self._done += count
        left = self._length - self._done
        if left > 0:
            if self._kind == "untouched" and left <= count:
                self._last_begun = torch.cuda.Event()
                self._last_begun.record()
            self._begin_iteration()
            return
        self._stack.close()
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
        elif kind == "recovering":
            self.number += self._done if self._block else 0
        elif kind == "untouched":
            self._end_untouched((ended - self._start) / self._done)
        else:
            self._process_trace(self.tracer.stop(), settled_s, marked=kind == "marked")
            self._kinds.append("recovering")

    def _end_untouched(self, host_s: float) -> None:
        """Records a block. If the device has already begun the last iteration, it keeps up with the host, so the host's
        time is the time to launch kernels and can be compared with that of a traced block."""
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        assert self._event is not None
        self._pending.append((self.number, self._done, self._event, event))
        keeps_up = self._last_begun is not None and self._last_begun.query()
        self._before_s = host_s if keeps_up else None
        if self._needs_after is not None:
            self._needs_after.after_s, self._needs_after = self._before_s, None
        self._read_events()
        self.number += self._done

    def _read_events(self, wait: bool = False) -> None:
        while self._pending and (wait or self._pending[0][3].query()):
            first, count, start, end = self._pending.popleft()
            if wait:
                end.synchronize()
            seconds = start.elapsed_time(end) * 1e-3 / count
            for i in range(count):
                self._keep_wall(first + i, seconds, sampled=False, near=count - i < 3 or i < 2)

    def finish(self) -> None:
        self._read_events(wait=True)
        self.tracer.restore_environment()
        samples = samples_of(self._blocks, self._pairs)
        self.samples = samples[:: max(1, ceil(len(samples) / KEEP_SAMPLES))]
        if self._last_traced is not None:
            self.trace = iteration_trace(*self._last_traced, str(self.device))

    # Traced blocks

    def _process_trace(self, kernels: list[Kernel], host_s: float, marked: bool) -> None:
        if kernels:  # else the profiler returned nothing; another block follows
            by_launch = keys_by_launch(kernels, self._logs)
            if marked and self.order is None:
                self.order = KernelOrder.learned(kernels, by_launch)
            if self._block:  # else it belongs to the prelude
                self._keep_block(kernels, by_launch, host_s, marked)
        seconds = perf_counter() - self._start
        for i in range(self._done if self._block else 0):
            self._keep_wall(self.number + i, seconds / self._done, sampled=True, near=True)
        self.number += self._done if self._block else 0
        sampled = sum(len(block.busy) for block in self._blocks) * self.stride
        if len(self._blocks) >= self.min_blocks and sampled >= MIN_SAMPLES:
            self._limit_overhead(seconds)

    def _keep_block(self, kernels: list[Kernel], by_launch: KernelKeys, host_s: float, marked: bool) -> None:
        keys, alike = self._keys(kernels, by_launch, marked)
        busy, hidden_s = busy_s(kernels, keys)
        self.hidden_s = hidden_s / max(1, self._done)
        numbers = [number for number, _ in keys]
        block = TracedBlock(
            first=self.number,
            stride=self.stride,
            busy={number: busy[number] for number in sorted(alike)[1:]},  # the first started on an idle device
            timings=None if marked else KernelTimes(kernels, numbers),
            loading=loading_in(self._logs),
            host_s=host_s,
            launches=len({kernel.launched for kernel in kernels}) / self._done,
            before_s=self._before_s,
        )
        self._needs_after, self._last_traced = block, (self._logs[-1], kernels)
        if not alike:
            self.order = None  # the kernels have changed: marks are needed again
        if self._blocks_seen % self._keep_every == 0:
            self._blocks.append(block)
        self._blocks_seen += 1
        if len(self._blocks) > KEEP_BLOCKS:
            self._blocks, self._keep_every = self._blocks[::2], 2 * self._keep_every

    def _keys(self, kernels: list[Kernel], by_launch: KernelKeys, marked: bool) -> tuple[KernelKeys, set[int]]:
        """The span key of each kernel, and the iterations (or windows) for which the keys are reliable."""
        if marked:
            return by_launch, {number for number, _ in by_launch}
        if self.order is None:
            return by_launch, set()
        if self.captured:
            found = self.order.assign_captured(kernels, [key for _, key in by_launch], self._done)
            keys = [(number // self.stride, key) for number, key in found]
            return keys, {number for number, _ in keys}
        return keys_by_order(kernels, by_launch, self.order)

    def _limit_overhead(self, block_s: float) -> None:
        """Once there are enough samples, limits the overhead to `MAX_OVERHEAD`."""
        untouched = [seconds for _, seconds, sampled in self.walls[-1000:] if not sampled]
        if untouched:
            each_s = median(untouched)
            extra_s = block_s - self._done * each_s
            self.every = max(self.every, ceil(extra_s / (MAX_OVERHEAD * self.lengths.default * each_s)))
