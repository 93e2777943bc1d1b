"""The same measurement on a GPU: blocks of iterations, because a device that works ahead has no single ones.

Most blocks are untouched, with an event at either end that is read when it has long passed. At the beginning some
blocks tell what being traced costs a launch, and one with marks whose kernels are whose. From then on a block now
and then is traced without marks: busy and idle time, layer by layer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from itertools import groupby, pairwise
from math import ceil
from statistics import median
from time import perf_counter

import torch
from torch import nn

from paceline.measure.idleness import idle_s
from paceline.measure.kernel_order import KernelOrder
from paceline.measure.kernels import Kernel, Tracing, alone_s, owners_by_launch
from paceline.measure.session import ENOUGH_SAMPLES, MOST_OVERHEAD, Sample, Session
from paceline.measure.tape import Owner, Tape
from paceline.trace import Span, Trace

BLOCK = 5
BLOCK_S = 0.02
LONGEST_BLOCK = 50
WINDOWS = 2
"""A block of captured iterations has so many windows; each of them is a sample of many."""
SAMPLED_SHARE = 25
"""In the long run one block in so many is looked into at most."""
PAIRS = 16
"""Blocks with and without tracing that tell what tracing costs."""


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
        self.block = BLOCK if stride == 1 else WINDOWS * stride
        self.tracing = Tracing(device)
        pairs = 1 if captured else PAIRS  # a graph is launched rarely
        prelude = ["host alone", "host traced"] * pairs + ["marked"] * (not captured)
        self._kinds: deque[str] = deque(["warm-up", *prelude])
        self._kind = ""
        self._place = 0
        self._done = 0
        self._host_s: dict[str, list[float]] = {"host alone": [], "host traced": []}
        self._launches = 0.0
        self._start = 0.0
        self._each_s = BLOCK_S
        self._event: torch.cuda.Event | None = None
        self._pending: deque[tuple[int, int, torch.cuda.Event, torch.cuda.Event]] = deque()
        self._tapes: list[Tape] = []
        self._idle: list[dict[Owner, float]] = []
        self._iteration = ExitStack()
        self._marked_last = False
        self.light: list[Callable[[Tape], ExitStack]] = []
        """The few marks that a traced block has too: what is launched beside a graph is told by them."""

    @property
    def launch_cost_s(self) -> float:
        """What being traced adds to a launch, on the network's own launches."""
        alone, traced = self._host_s["host alone"], self._host_s["host traced"]
        if not alone or not traced or not self._launches:
            return 0.0
        return max(0.0, (median(traced) - median(alone)) / self._launches)

    @property
    def current(self) -> int | None:
        return self.number + self._done if self._place else None

    @property
    def first_sample(self) -> int:
        return len(self._kinds) * self.block + self.every // 2 * self.block

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
        if self._kind in ("host traced", "marked", "traced"):
            self.tracing.stop()
        if self._kind and self._kind != "untouched":
            self._kinds.appendleft(self._kind)  # it is made up for
        self._kind, self.tape = "", None

    def _next_kind(self) -> str:
        if self._kinds:
            return self._kinds.popleft()
        if not self._place and self.stride == 1:
            # Short iterations need more of them for a block that can be timed.
            self.block = max(BLOCK, min(LONGEST_BLOCK, round(BLOCK_S / max(1e-9, self._each_s))))
        self._place += 1
        if self._place % self.every != self.every // 2:
            return "untouched"
        self._marked_last = self.order is None and not self._marked_last
        return "marked" if self._marked_last else "traced"  # in turns, as long as the kernels differ every time

    def _begin_block(self) -> None:
        self._kind, self._done, self._tapes = self._next_kind(), 0, []
        self._start = perf_counter()
        if self._kind == "untouched":
            self._event = torch.cuda.Event(enable_timing=True)
            self._event.record()
        elif self._kind.startswith("host"):
            torch.cuda.synchronize(self.device)
        if self._kind in ("host traced", "marked", "traced"):
            self.tracing.start()
        if self._kind.startswith("host"):
            self._start = perf_counter()
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
        self._done += count
        if self._done < self.block:
            self._begin_iteration()
            return
        self._stack.close()
        self._end_block()
        self._begin_block()

    def _end_block(self) -> None:
        kind = self._kind
        if kind == "warm-up":
            torch.cuda.synchronize(self.device)
            self._each_s = (perf_counter() - self._start) / self._done
            self.tracing.start()  # the first trace of a process starts the tracing library, which takes seconds
            self.tracing.stop()
            self.shapes_known = True
        elif kind.startswith("host"):
            self._host_s[kind].append(perf_counter() - self._start)
            if kind == "host traced":
                self._launches = len({kernel.launched for kernel in self.tracing.stop()}) or self._launches
        elif kind == "recovering":
            self.number += self._done
        elif kind == "untouched":
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            assert self._event is not None
            self._pending.append((self.number, self._done, self._event, event))
            self._read_events()
            self.number += self._done
        else:
            self._look_into(self.tracing.stop(), marked=kind == "marked")
            self._kinds.append("recovering")  # the device had a pause, and is faster for a while

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

    # What a traced block tells

    def _look_into(self, kernels: list[Kernel], marked: bool) -> None:
        by_launch = owners_by_launch(kernels, self._tapes)
        if marked and self.order is None:
            self.order = KernelOrder.learnt(kernels, by_launch)
            if not self.walls and not self._pending:
                return  # that was the prelude's
        whose, alike = self._owners(kernels, by_launch, marked)
        busy = self._busy(kernels, whose)
        if not marked:
            found = idle_s(kernels, [number for number, _ in whose], self._loading(), self.launch_cost_s)
            self._idle = [found.get(number, {}) for number in range(max(busy, default=0) + 1)]
        for number in sorted(alike)[1:]:  # the first of a block had the device to itself
            owners = {**busy[number], **(self._idle[min(number, len(self._idle) - 1)] if self._idle else {})}
            self._keep_sample(self._each(Sample(self.number + number * self.stride, owners, sum(owners.values()))))
        if not alike:
            self.order = None  # the network does something else now: marks are needed again
        seconds = (perf_counter() - self._start) / self._done
        for i in range(self._done):
            self._keep_wall(self.number + i, seconds, sampled=True, near=True)
        self.number += self._done
        self.trace = self._trace(kernels)
        if len(self.samples) * self.stride >= ENOUGH_SAMPLES:
            self._look_less_than(seconds * self._done)

    def _owners(
        self, kernels: list[Kernel], by_launch: list[tuple[int, Owner]], marked: bool
    ) -> tuple[list[tuple[int, Owner]], set[int]]:
        """Whose the kernels are, and the iterations (or windows of them) for which that is sure."""
        if marked:
            return by_launch, {number for number, _ in by_launch}
        if self.order is None:
            return by_launch, set()
        if self.captured:
            found = self.order.assign_captured(kernels, [owner for _, owner in by_launch], self._done)
            whose = [(number // self.stride, owner) for number, owner in found]
            return whose, {number for number, _ in whose}
        whose, alike = list(by_launch), set()
        for number, places in groupby(range(len(kernels)), key=lambda place: by_launch[place][0]):
            mine = list(places)
            owners = self.order.assign([kernels[place] for place in mine])
            if owners is not None:
                alike.add(number)
                whose[mine[0] : mine[-1] + 1] = [(number, owner) for owner in owners]
        return whose, alike

    def _each(self, sample: Sample) -> Sample:
        """Of a window of iterations one, their mean."""
        owners = {owner: seconds / self.stride for owner, seconds in sample.owners.items()}
        return Sample(sample.number, owners, sample.wall_s / self.stride)

    def _look_less_than(self, block_s: float) -> None:
        """With enough samples, what looking costs is kept to a hundredth of the time."""
        untouched = [seconds for _, seconds, sampled in self.walls[-1000:] if not sampled]
        if untouched:
            extra = block_s / (self._done * median(untouched)) - 1.0
            self.every = max(self.every, ceil(extra / MOST_OVERHEAD))

    def _loading(self) -> list[tuple[int, int]]:
        return [
            (start, end)
            for tape in self._tapes
            for (_, (part, _), _, start), (_, _, end, _) in pairwise(tape.marks)
            if part == "load"
        ]

    def _busy(self, kernels: list[Kernel], whose: list[tuple[int, Owner]]) -> dict[int, dict[Owner, float]]:
        busy: dict[int, dict[Owner, float]] = {}
        hidden = 0.0
        for kernel, (number, owner), seconds in zip(kernels, whose, alone_s(kernels), strict=True):
            owners = busy.setdefault(number, {})
            owners[owner] = owners.get(owner, 0.0) + seconds
            if kernel.communicates:
                hidden += (kernel.end - kernel.start) * 1e-9 - seconds
        self.hidden_s = hidden / max(1, self._done)
        return busy

    def _trace(self, kernels: list[Kernel]) -> Trace:
        """The last iteration of the block: what the host was at, and the kernels it launched."""
        tape = self._tapes[-1]
        origin = tape.marks[0][3]
        host = [
            Span("host", f"{part} {row}".strip(), (start - origin) * 1e-9, (end - origin) * 1e-9)
            for (_, (part, row), _, start), (_, _, end, _) in pairwise(tape.marks)
            if end > start
        ]
        device = [
            Span(str(self.device), k.name[:120], (k.start - origin) * 1e-9, (k.end - origin) * 1e-9)
            for k in kernels
            if k.launched >= origin
        ]
        return Trace(tuple(host + device))
