"""The same measurement on a GPU: blocks of iterations, because a device that works ahead has no single ones.

Most blocks are untouched, with an event at either end that is read when it has long passed. At the beginning some
blocks tell what being traced costs a launch, and one with marks whose kernels are whose. From then on a block now
and then is traced without marks: busy and idle time, layer by layer. It is compared with its untouched neighbours: on
the device for the result, on the host for what being traced costs.
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

from paceline.measurement.block_kernels import Whose, busy_s, loading_in, owners_in_order, trace_of
from paceline.measurement.block_lengths import BlockLengths
from paceline.measurement.kernel_order import KernelOrder
from paceline.measurement.kernels import Kernel, owners_by_launch
from paceline.measurement.session import ENOUGH_SAMPLES, FEW, KEEP_SAMPLES, MOST_OVERHEAD, Session
from paceline.measurement.slowdown import Comparison
from paceline.measurement.tape import Tape
from paceline.measurement.traced_block import Timings, TracedBlock, samples_of
from paceline.measurement.tracing import Tracing

SAMPLED_SHARE = 40
"""In the long run one block in so many is looked into at most."""
LEAST_EVERY = 3
"""So that a traced block has untouched ones on both sides."""
PAIRS = 4
"""Blocks with and without tracing that tell beforehand what tracing costs."""
ENOUGH_BLOCKS, ENOUGH_CAPTURED = 30, 6
"""So that a bad moment of the machine does not decide; captured iterations hardly depend on the host."""
KEEP_BLOCKS = 100
TRACES = ("host traced", "marked", "traced")


class GpuSession(Session):
    """A session whose iterations come in blocks, `stride` at a time.

    `captured` ones run as graphs, whose kernels `order` tells apart.
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
        self.enough_blocks = ENOUGH_CAPTURED if captured else ENOUGH_BLOCKS
        self.tracing = Tracing(device, lets_go=not captured)
        pairs = 1 if captured else PAIRS  # a graph is launched rarely
        prelude = ["host alone"] * pairs + ["host traced"] * pairs + ["marked"] * (not captured)
        self._kinds: deque[str] = deque(["warm-up", *prelude])
        self._planned: int | None = None
        self._kind = ""
        self._place = 0
        self._done = self._length = 0
        self._start = self._settled = 0.0
        """When the host began the block under way, and when it had done the first iteration, which is unlike others."""
        self._alone_s: list[float] = []
        self._pairs: list[Comparison] = []
        self._blocks: list[TracedBlock] = []
        self._blocks_seen, self._keep_every = 0, 1
        self._before_s: float | None = None
        """The host's time for an iteration of the untouched block that has just ended, if it tells anything."""
        self._has_no_after: TracedBlock | None = None
        self._event: torch.cuda.Event | None = None
        self._last_begun: torch.cuda.Event | None = None
        self._pending: deque[tuple[int, int, torch.cuda.Event, torch.cuda.Event]] = deque()
        self._tapes: list[Tape] = []
        self._last_traced: tuple[Tape, list[Kernel]] | None = None
        self._iteration = ExitStack()
        self._marked_last = False
        self.light: list[Callable[[Tape], ExitStack]] = []
        """The few marks that a traced block has too: what is launched beside a graph is told by them."""

    @property
    def current(self) -> int | None:
        return self.number + self._done if self._place else None

    @property
    def least_iterations(self) -> int:
        """With fewer there would not be twenty samples."""
        return (2 * ENOUGH_SAMPLES if self.stride == 1 else ENOUGH_SAMPLES) * self.lengths.usual

    @property
    def first_sample(self) -> int:
        return (len(self._kinds) + self.every // 2) * self.lengths.usual

    # How often to look

    def plan(self, iterations: int) -> None:
        """About so many are to come: enough blocks of them are looked into, and of many at most one in forty."""
        self._planned = iterations
        self.every = max(LEAST_EVERY, min(SAMPLED_SHARE, iterations // self.lengths.usual // self.enough_blocks))

    def look_every(self, blocks: int) -> None:
        """From now on one block in so many is looked into, the first of them after half as many."""
        self.every = blocks
        self._place = ceil(self._place / blocks) * blocks

    def neighbours(self, typical_s: float) -> tuple[int, int]:
        return FEW, 0  # a block's iterations all have its mean, and a pause follows a traced one

    def overhead(self, untouched_s: float) -> float:
        return sum(seconds for _, seconds, _ in self.walls) / (max(1, len(self.walls)) * untouched_s) - 1.0

    # The life of a block

    def begin(self) -> None:
        self.close()
        if not self.shapes_known:
            self._stack.enter_context(self.shapes.watching())
        self._begin_block()

    def close(self) -> None:
        """What was under way does not count."""
        self._iteration.close()
        self._stack.close()
        if self._kind not in ("", "untouched", "recovering"):
            self._kinds.appendleft(self._kind)  # it is made up for
        if self._kind in TRACES:
            self.tracing.stop()
        self._kind, self.tape, self._before_s, self._has_no_after = "", None, None, None

    def _next_kind(self) -> str:
        if self._kinds:
            return self._kinds.popleft()
        self._place += 1
        if self._place % self.every != self.every // 2:
            return "untouched"
        self._marked_last = self.order is None and not self._marked_last
        return "marked" if self._marked_last else "traced"  # in turns, as long as the kernels differ every time

    def _begin_block(self) -> None:
        self._kind, self._done, self._tapes = self._next_kind(), 0, []
        self._length = self.lengths.of(self._kind)
        self._start = perf_counter()
        if self._kind == "untouched":
            self._event, self._last_begun = torch.cuda.Event(enable_timing=True), None
            self._event.record()
        elif self._kind.startswith("host"):
            torch.cuda.synchronize(self.device)
        if self._kind in TRACES:
            self.tracing.start()
        self._begin_iteration()

    def _begin_iteration(self) -> None:
        if self._kind not in ("marked", "traced"):
            return
        self.tape = Tape()
        if self._kind == "marked":
            self._iteration.enter_context(self.marks.installed())
        for extra in self.extra if self._kind == "marked" else self.light:
            self._iteration.enter_context(extra(self.tape))
        self.tape.mark("edge", self.first_owner)

    def end_iteration(self, count: int = 1) -> None:
        if not self._kind:
            self.begin()
            return
        if self.tape is not None:
            self.tape.mark("edge", ("other", ""))
            self._iteration.close()
            self.backwards += self.marks.backwards if self._kind == "marked" else 0
            self._tapes.append(self.tape)
            self.tape = None
        if not self._done:
            self._settled = perf_counter()
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
        settled_s = (ended - self._settled) / max(1, self._done - self.stride)
        if kind == "warm-up":
            self.shapes_known = True
        elif kind == "host alone":
            self._alone_s.append(settled_s)
            torch.cuda.synchronize(self.device)
            self.lengths.suit((perf_counter() - self._settled) / max(1, self._done - self.stride))
            if self._planned is not None:
                self.plan(self._planned)
        elif kind == "host traced":
            self.tracing.stop(stays=True)
            self._pairs.append(Comparison(settled_s, median(self._alone_s)))
        elif kind == "recovering":
            self.number += self._done if self._place else 0
        elif kind == "untouched":
            self._end_untouched((ended - self._start) / self._done)
        else:
            self._look_into(self.tracing.stop(), settled_s, marked=kind == "marked")
            self._kinds.append("recovering")

    def _end_untouched(self, host_s: float) -> None:
        """Where the device has already begun the last iteration, it keeps up with the host, which then never had to
        wait for it: the host's time is that of launching, and can be compared with a traced block's."""
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        assert self._event is not None
        self._pending.append((self.number, self._done, self._event, event))
        keeps_up = self._last_begun is not None and self._last_begun.query()
        self._before_s = host_s if keeps_up else None
        if self._has_no_after is not None:
            self._has_no_after.after_s, self._has_no_after = self._before_s, None
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
        self.tracing.forget_to_let_go()
        samples = samples_of(self._blocks, self._pairs)
        self.samples = samples[:: max(1, ceil(len(samples) / KEEP_SAMPLES))]
        if self._last_traced is not None:
            self.trace = trace_of(*self._last_traced, str(self.device))

    # What a traced block tells

    def _look_into(self, kernels: list[Kernel], host_s: float, marked: bool) -> None:
        if kernels:  # else the tracing library gave none; there will be another block
            by_launch = owners_by_launch(kernels, self._tapes)
            if marked and self.order is None:
                self.order = KernelOrder.learnt(kernels, by_launch)
            if self._place:  # else that was the prelude's
                self._keep_block(kernels, by_launch, host_s, marked)
        seconds = perf_counter() - self._start
        for i in range(self._done if self._place else 0):
            self._keep_wall(self.number + i, seconds / self._done, sampled=True, near=True)
        self.number += self._done if self._place else 0
        sampled = sum(len(block.busy) for block in self._blocks) * self.stride
        if len(self._blocks) >= self.enough_blocks and sampled >= ENOUGH_SAMPLES:
            self._look_less_than(seconds)

    def _keep_block(self, kernels: list[Kernel], by_launch: Whose, host_s: float, marked: bool) -> None:
        whose, alike = self._owners(kernels, by_launch, marked)
        busy, hidden_s = busy_s(kernels, whose)
        self.hidden_s = hidden_s / max(1, self._done)
        numbers = [number for number, _ in whose]
        block = TracedBlock(
            first=self.number,
            stride=self.stride,
            busy={number: busy[number] for number in sorted(alike)[1:]},  # the first had the device to itself
            timings=None if marked else Timings(kernels, numbers),
            loading=loading_in(self._tapes),
            host_s=host_s,
            launches=len({kernel.launched for kernel in kernels}) / self._done,
            before_s=self._before_s,
        )
        self._has_no_after, self._last_traced = block, (self._tapes[-1], kernels)
        if not alike:
            self.order = None  # the network does something else now: marks are needed again
        if self._blocks_seen % self._keep_every == 0:
            self._blocks.append(block)
        self._blocks_seen += 1
        if len(self._blocks) > KEEP_BLOCKS:
            self._blocks, self._keep_every = self._blocks[::2], 2 * self._keep_every

    def _owners(self, kernels: list[Kernel], by_launch: Whose, marked: bool) -> tuple[Whose, set[int]]:
        """Whose the kernels are, and the iterations (or windows of them) for which that is sure."""
        if marked:
            return by_launch, {number for number, _ in by_launch}
        if self.order is None:
            return by_launch, set()
        if self.captured:
            found = self.order.assign_captured(kernels, [owner for _, owner in by_launch], self._done)
            whose = [(number // self.stride, owner) for number, owner in found]
            return whose, {number for number, _ in whose}
        return owners_in_order(kernels, by_launch, self.order)

    def _look_less_than(self, block_s: float) -> None:
        """With enough samples, what looking costs is kept to a hundredth of the time."""
        untouched = [seconds for _, seconds, sampled in self.walls[-1000:] if not sampled]
        if untouched:
            each_s = median(untouched)
            extra_s = block_s - self._done * each_s
            self.every = max(self.every, ceil(extra_s / (MOST_OVERHEAD * self.lengths.usual * each_s)))
