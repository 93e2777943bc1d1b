"""The loops that a performance engineer would write by hand, as fast as PyTorch's documentation shows how to make them.

All of them keep one batch on the device and track nothing, which is more than a training can have.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import torch
from torch import Tensor

from paceline.step.build import assemble, load_data
from paceline.step.feeder import first_batch
from paceline.step.host_memory import give_back_freed_memory
from paceline.step.phase import AUTOCAST, LossPhase
from paceline.step.tally import Tally
from paceline.training.step_choice import choose_step
from paceline.workload import Workload

LOOPS = ("eager", "channels-last", "compile", "max-autotune", "captured")
COMPILED = {"compile": "default", "max-autotune": "max-autotune"}


class HandLoop:
    """One iteration after another on one batch; `workload` is trained by SGD with momentum."""

    def __init__(self, workload: Workload, kind: str, device: torch.device) -> None:
        parts = assemble(workload, load_data(workload), device)
        give_back_freed_memory()  # a hand-written loop has memory as PyTorch and the C library manage it
        x, self.y = first_batch(parts.feeder)
        assert isinstance(x, Tensor)
        parts.feeder.close()
        layout = torch.contiguous_format if kind == "eager" or x.dim() != 4 else torch.channels_last
        self.x, self.network = x.contiguous(memory_format=layout), parts.network.to(memory_format=layout)
        self.call: Callable[[Tensor], Tensor] = self.network
        if kind in COMPILED:
            self.call = torch.compile(self.network, dynamic=False, mode=COMPILED[kind])
        phase = parts.phases[0]
        assert isinstance(phase, LossPhase)
        self.phase, self.device, self.precision = phase, device, AUTOCAST.get(workload.precision)
        self.optimizer = torch.optim.SGD(
            self.network.parameters(), lr=workload.lr, momentum=workload.momentum, weight_decay=workload.l2, fused=True
        )
        self.graph: torch.cuda.CUDAGraph | None = None
        if kind == "captured":
            self._capture()

    def step(self) -> None:
        context = torch.autocast(self.device.type, self.precision) if self.precision else nullcontext()
        self.optimizer.zero_grad(set_to_none=True)
        with context:
            loss, _ = self.phase.loss_of(self.call(self.x), self.y)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()

    def _capture(self) -> None:
        """As the documentation of CUDA graphs shows it."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                self.step()
        torch.cuda.current_stream().wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.step()

    def run(self, count: int) -> None:
        for _ in range(count):
            if self.graph is None:
                self.step()
            else:
                self.graph.replay()


class PacelineLoop:
    """A step of Paceline as a run takes it, through epochs: shuffling, feeding, seeding, loss and accuracy count."""

    def __init__(self, workload: Workload, kind: str, device: torch.device) -> None:
        parts = assemble(workload, load_data(workload), device)
        self.step, self.choice = choose_step(parts, kind)
        self.tally = Tally(workload.top)
        self.left = self.epoch = 0

    def run(self, count: int) -> None:
        while count:
            if not self.left:
                self.step.begin(self.epoch)
                self.epoch, self.left = self.epoch + 1, self.step.parts.feeder.order.full_batches
            now = min(count, self.left)
            self.step.advance(now, self.tally)
            self.left, count = self.left - now, count - now
