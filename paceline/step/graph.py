"""The graph step: forward, backward and update captured once as a CUDA graph, then replayed.

A small network spends its time in launching. Here the batches of several steps are gathered into a window on
the device and one graph takes all of those steps; losses and outputs stay in the window until they are counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from paceline.step.feeder import ResidentFeeder, first_batch
from paceline.step.flat import FlatStep
from paceline.step.layout import has_channels_last
from paceline.step.phase import Batch, Outcome
from paceline.step.placement import device_free_bytes
from paceline.step.snapshot import StepSnapshot
from paceline.step.step import Parts, Step, reported
from paceline.step.tally import KEEP_ELEMENTS, Tally, ranks_of

WARM_UP = 3  # runs before capturing, in which libraries choose algorithms and allocate
WINDOW_STEPS = 50
WINDOW_BYTES = 256 << 20
LONG_STEP_BYTES = 16 << 20
"""The step of a batch of this size takes so long that launching a graph for each does not matter."""


def window_length(steps: int, room_bytes: int, step_bytes: int) -> int:
    """How many steps a window takes: as many as have room, so that few of an epoch's steps are left over."""
    if step_bytes >= LONG_STEP_BYTES:
        return 1
    longest = max(1, min(WINDOW_STEPS, room_bytes // step_bytes, steps))
    return min(range(longest, (longest - 1) // 2, -1), key=lambda length: steps % length)


@dataclass(frozen=True, eq=False)
class EpochPlan:
    """What an epoch needs on the device: which samples, at which rates; the smaller last batch apart."""

    epoch: int
    chosen: Tensor | None
    rates: list[Tensor]
    left_over: list[Tensor]


class Window:
    """Inputs, rates and results of several steps, at fixed addresses, and the graphs that take them.

    Random numbers are seeded step by step, so with them every step is a graph of its own; else one takes all. Graphs
    share one pool of memory: what a step leaves behind is copied out of it, and one graph runs at a time.
    """

    def __init__(self, step: GraphStep, length: int, example: Batch, outcome: Outcome, pool: Any) -> None:
        def room(like: Tensor) -> Tensor:
            return like.detach().expand(length, *like.shape).clone()

        self.length = length
        assert isinstance(example[0], Tensor), "asked of `possible`"
        self.x, self.y = _input_room(example[0], length), room(example[1])
        self.chain = step.phases[0].chain if len(step.phases) == 1 else None
        self.slopes = self.chain.slopes_of(self.y.flatten()).view(*self.y.shape, -1) if self.chain else None
        self.rates = [room(phase.lr) for phase in step.phases]
        self.losses = room(outcome.loss) if outcome.loss is not None else None
        self.outputs = room(outcome.output) if outcome.output is not None else None
        torch.cuda.synchronize()
        places = [[place] for place in range(length)] if step.parts.random else [list(range(length))]
        self.graphs: list[torch.cuda.CUDAGraph] = []
        for group in places:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool):
                for place in group:
                    self._take(step, place)
            self.graphs.append(graph)

    def _take(self, step: GraphStep, place: int) -> None:
        batch = self.x[place], self.y[place] if self.slopes is None else self.slopes[place]
        generator = step.parts.generator
        steps = zip(step.phases, self.rates, strict=True)
        outcome = _without_scores(reported([p.step(batch, generator, rates[place]) for p, rates in steps]), batch)
        if self.losses is not None and outcome.loss is not None:
            self.losses[place].copy_(outcome.loss)
        if self.outputs is not None and outcome.output is not None:
            self.outputs[place].copy_(outcome.output)

    def replay(self, parts: Parts, epoch: int, first: int) -> None:
        for number, graph in enumerate(self.graphs):
            parts.seed(epoch, first + number)
            graph.replay()

    def count(self, tally: Tally) -> None:
        """Adds the results of the steps just taken."""
        outputs = self.outputs.flatten(0, 1) if self.outputs is not None else None
        tally.add_many(self.losses, self.y.shape[1], outputs, self.y.flatten(0, 1))


def _without_scores(outcome: Outcome, batch: Batch) -> Outcome:
    """Ranks in place of scores that are too many to be copied and kept, such as those of a language model."""
    output = outcome.output
    if output is None or outcome.loss is None or output.numel() < KEEP_ELEMENTS:
        return outcome
    return Outcome(outcome.loss, (), ranks_of(output, batch[1]) if output.is_floating_point() else output)


def _input_room(like: Tensor, length: int) -> Tensor:
    """Room for the inputs of several steps, each in the memory layout of `like`."""
    if not has_channels_last(like):
        return like.expand(length, *like.shape).clone()
    joined = like.repeat(length, 1, 1, 1).contiguous(memory_format=torch.channels_last)
    return joined.view(length, *like.shape)


class GraphStep(FlatStep):
    kind = "graph"

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self.resident = parts.feeder if isinstance(parts.feeder, ResidentFeeder) else None
        example = self.laid_out(first_batch(parts.feeder))
        before = StepSnapshot(parts.network, self, parts.generator)
        outcome = self._warm_up(example)
        size = sum(t.numel() * t.element_size() for t in (*example, outcome.output) if isinstance(t, Tensor))
        room = min(WINDOW_BYTES, device_free_bytes(parts.device) // 50)
        # What streams in comes one by one.
        length = window_length(parts.feeder.order.full_batches, room, size) if self.resident is not None else 1
        pool = torch.cuda.graph_pool_handle()
        self.windows = [Window(self, n, example, outcome, pool) for n in sorted({length, 1}, reverse=True)]
        before.restore()
        self._ahead: EpochPlan | None = None

    @staticmethod
    def possible(parts: Parts) -> str | None:
        if parts.dataset.kind == "fields":
            return "its samples have several fields"
        if any(phase.rule.epochs != (0, None) for phase in parts.phases):
            return "its phases are not those of every epoch"
        return None if parts.device.type == "cuda" else "there is no GPU in use"

    def _warm_up(self, example: Batch) -> Outcome:
        device = self.parts.device
        stream = torch.cuda.Stream(device)
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP):
                outcomes = [phase.step(example, self.parts.generator) for phase in self.phases]
        torch.cuda.current_stream(device).wait_stream(stream)
        return _without_scores(reported(outcomes), example)

    def laid_out(self, batch: Batch) -> Batch:
        """The batch as its copy in a window is laid out: images like the convolution weights."""
        x, y = batch
        assert isinstance(x, Tensor), "asked of `possible`"
        if x.dim() == 4 and any(has_channels_last(each) for each in self.parts.network.parameters()):
            x = x.contiguous(memory_format=torch.channels_last)
        return _input_room(x, 1)[0], y

    def take(self, batch: Batch) -> Outcome:
        return super().take(self.laid_out(batch))

    def begin(self, epoch: int, first: int = 0) -> None:
        self.epoch, self.next = epoch, first
        if self._ahead is None or self._ahead.epoch != epoch:
            self._ahead = self._plan(epoch)
        self.plan, self._ahead = self._ahead, None
        if self.resident is None:
            self._batches = self.parts.feeder.batches(epoch, first)
        else:
            left_over = self.plan.left_over if first <= self.parts.feeder.order.full_batches else []
            self._batches = self.resident.chosen(left_over)

    def _plan(self, epoch: int) -> EpochPlan:
        order, device = self.parts.feeder.order, self.parts.device
        whole = order.full_batches
        rates = [
            torch.tensor([self.parts.rate(p.phase, epoch, step) for step in range(whole)], dtype=p.lr.dtype)
            for p in self.phases
        ]
        batches = order.epoch(epoch) if self.resident is not None else []
        chosen = torch.cat(batches[:whole]).to(device, non_blocking=True) if batches else None
        return EpochPlan(epoch, chosen, [r.to(device, non_blocking=True) for r in rates], batches[whole:])

    def advance(self, count: int, tally: Tally) -> None:
        whole = max(0, min(count, self.parts.feeder.order.full_batches - self.next))
        others = count - whole
        for window in self.windows:
            while whole >= window.length:
                self._fill(window)
                window.replay(self.parts, self.epoch, self.next)
                window.count(tally)
                self.next += window.length
                whole -= window.length
        if others:
            Step.advance(self, others, tally)  # a smaller last batch
        if self.next == self.parts.feeder.order.batches and self.epoch + 1 < self.parts.workload.epochs:
            self._ahead = self._plan(self.epoch + 1)  # while the device is still busy with this one

    def _fill(self, window: Window) -> None:
        """Brings the next batches and rates to where the graph reads them."""
        steps = slice(self.next, self.next + window.length)
        for place, rates in zip(window.rates, self.plan.rates, strict=True):
            place.copy_(rates[steps])
        if self.resident is None or self.plan.chosen is None:
            x, y = next(self._batches)
        else:
            size = self.parts.feeder.order.batch
            x, y = self.resident.gather(self.plan.chosen[steps.start * size : steps.stop * size])
        assert isinstance(x, Tensor)
        window.x.flatten(0, 1).copy_(x)
        window.y.flatten(0, 1).copy_(y)
        if window.slopes is not None and window.chain is not None:
            window.slopes.flatten(0, 1).copy_(window.chain.slopes_of(y))
