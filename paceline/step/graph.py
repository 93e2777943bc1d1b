"""The graph step: gathering, forward, backward and update captured once as a CUDA graph, then replayed.

Where the data live on the device, a replay needs nothing from the host: a counter on the device says which
batch is next, the epoch's order and learning rates lie beside it, and results go into a ring that is read
now and then. A small network otherwise spends its time in launching.
"""

from __future__ import annotations

import torch
from torch import Tensor

from paceline.step.feeder import ResidentFeeder
from paceline.step.flat import FlatStep
from paceline.step.phase import Batch, Outcome
from paceline.step.snapshot import Snapshot
from paceline.step.step import Parts, reported
from paceline.step.tally import Tally

WARM_UP = 3  # runs before capturing, in which libraries choose algorithms and allocate
RING_STEPS = 256
RING_ELEMENTS = 1 << 24


class GraphStep(FlatStep):
    kind = "graph"

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        order, device = parts.feeder.order, parts.device
        self.resident = parts.feeder if isinstance(parts.feeder, ResidentFeeder) else None
        self.counter = torch.zeros(2, dtype=torch.int64, device=device)  # batch of the epoch, place in the ring
        self.order = torch.zeros((order.full_batches, order.batch), dtype=torch.int64, device=device)
        self.rates = torch.zeros((len(self.phases), order.full_batches), dtype=torch.float64, device=device)
        self.inputs: Batch | None = None
        self.losses: Tensor | None = None
        self.outputs: Tensor | None = None
        self.targets: Tensor | None = None
        self.filled = 0
        self._capture()

    @staticmethod
    def possible(parts: Parts) -> str | None:
        if parts.device.type != "cuda":
            return "there is no GPU in use"
        return None

    def _capture(self) -> None:
        """Runs the step a few times, captures it, and puts everything back to where it was."""
        parts = self.parts
        if self.resident is None:
            batches = parts.feeder.batches(0)
            self.inputs = next(batches)
            batches.close()  # type: ignore[attr-defined]
        before = Snapshot(parts.network, self, parts.generator)
        stream = torch.cuda.Stream(parts.device)
        stream.wait_stream(torch.cuda.current_stream(parts.device))
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP):
                self.counter.zero_()
                self._body()
        torch.cuda.current_stream(parts.device).wait_stream(stream)
        self._allocate_ring()
        self.counter.zero_()
        torch.cuda.synchronize(parts.device)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self._body()
        before.restore()
        self.counter.zero_()

    def _batch(self) -> Batch:
        if self.resident is None:
            assert self.inputs is not None
            return self.inputs
        chosen = self.order.index_select(0, self.counter[:1]).view(-1)
        x, y = self.resident.x.index_select(0, chosen), self.resident.y.index_select(0, chosen)
        return self.resident.prepare(x, y)

    def _body(self) -> None:
        batch = self._batch()
        outcomes = []
        for phase, rates in zip(self.phases, self.rates, strict=True):
            torch.index_select(rates, 0, self.counter[:1], out=phase.lr.view(1))
            outcomes.append(phase.step(batch, self.parts.generator))
        with torch.no_grad():
            self._remember(reported(outcomes), batch[1])
            self.counter += 1

    def _remember(self, outcome: Outcome, target: Tensor) -> None:
        place = self.counter[1:]
        if self.losses is None:  # the first warm-up run: only shapes are wanted
            self._shapes = outcome, target
            return
        self.losses.index_copy_(0, place, outcome.loss.detach().view(1))
        if self.outputs is not None and outcome.output is not None:
            self.outputs.index_copy_(0, place, outcome.output.unsqueeze(0))
        if self.targets is not None:
            self.targets.index_copy_(0, place, target.unsqueeze(0))

    def _allocate_ring(self) -> None:
        outcome, target = self._shapes
        elements = outcome.output.numel() if outcome.output is not None else 1
        steps = max(1, min(RING_STEPS, RING_ELEMENTS // elements))
        self.losses = torch.zeros(steps, dtype=outcome.loss.dtype, device=target.device)
        if outcome.output is not None:
            self.outputs = torch.zeros((steps, *outcome.output.shape), dtype=outcome.output.dtype, device=target.device)
        self.targets = torch.zeros((steps, *target.shape), dtype=target.dtype, device=target.device)
        del self._shapes

    def begin(self, epoch: int, first: int = 0) -> None:
        self.epoch, self.next = epoch, first
        whole = self.parts.feeder.order.full_batches
        rates = [[self.parts.rate(p.phase, epoch, step) for step in range(whole)] for p in self.phases]
        self.rates.copy_(torch.tensor(rates, dtype=torch.float64))
        if self.resident is not None:
            self.order.copy_(torch.stack(self.parts.feeder.order.epoch(epoch)[:whole]))
            self.counter.copy_(torch.tensor([first, 0]))
            self._batches = self.parts.feeder.batches(epoch, max(whole, first))
        else:
            self.counter.copy_(torch.tensor([first, 0]))
            self._batches = self.parts.feeder.batches(epoch, first)
        self.filled = 0

    def advance(self, count: int, tally: Tally) -> None:
        assert self.losses is not None
        whole = max(0, min(count, self.parts.feeder.order.full_batches - self.next))
        for _ in range(whole):
            if self.inputs is not None:
                for static, fresh in zip(self.inputs, next(self._batches), strict=True):
                    static.copy_(fresh, non_blocking=True)
            self.parts.seed(self.epoch, self.next)
            self.graph.replay()
            self.next += 1
            self.filled += 1
            if self.filled == len(self.losses):
                self._drain(tally)
        self._drain(tally)
        if count > whole:
            super().advance(count - whole, tally)  # a smaller last batch

    def _drain(self, tally: Tally) -> None:
        if self.filled:
            assert self.losses is not None and self.targets is not None
            outputs = self.outputs[: self.filled].flatten(0, 1) if self.outputs is not None else None
            size = self.parts.feeder.order.batch
            targets = self.targets[: self.filled].flatten(0, 1)
            tally.add_many(self.losses[: self.filled], size, outputs, targets)
            self.counter[1:].zero_()
            self.filled = 0
