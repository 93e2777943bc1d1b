"""Forward and backward passes of one stage on the micro-batches of a batch, with torch.distributed.pipelining.

A schedule has a fixed number of micro-batches of one size. The last batch of an epoch may be smaller: its whole
micro-batches are one schedule and what is left is another one, so the gradient is that of the same micro-batches in
one process.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, distributed
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

from paceline.step.phase import LossPhase
from paceline.step.pieces import Segment
from paceline.training.drivers.model_parallel.stage_times import StageTimes


class TimedStage(PipelineStage):
    """PyTorch's stage, with a clock."""

    times: StageTimes

    def forward_one_chunk(self, *arguments: Any, **options: Any) -> Any:
        with self.times.span("forward"):
            return super().forward_one_chunk(*arguments, **options)

    def backward_one_chunk(self, *arguments: Any, **options: Any) -> None:
        self.times.passes += 1
        with self.times.span("backward"):
            super().backward_one_chunk(*arguments, **options)


class Passes:
    def __init__(
        self, segment: Segment, phase: LossPhase, times: StageTimes, *, stage: int, stages: int, size: int,
        schedule: str, group: distributed.ProcessGroup, shapes: tuple[Tensor, Tensor] | None, averaged_over: int = 1,
    ) -> None:  # fmt: skip
        """`size`: samples of a micro-batch; `shapes`: input and output of the stage for one sample, without values.

        `averaged_over`: replicas that average gradients, instead of adding them up.
        """
        self.segment, self.phase, self.times = segment, phase, times
        self.stage, self.stages, self.size, self.schedule, self.group = stage, stages, size, schedule, group
        self.shapes, self.averaged_over = shapes, averaged_over
        self.total = 1
        """Samples that the gradient of this step is the mean of, with those of other replicas."""
        self._schedules: dict[tuple[int, int], ScheduleGPipe | Schedule1F1B] = {}

    @property
    def is_first(self) -> bool:
        return self.stage == 0

    @property
    def is_last(self) -> bool:
        return self.stage == self.stages - 1

    def run(self, x: Tensor | None, y: Tensor | None, samples: int, total: int) -> tuple[Tensor, Tensor] | None:
        """Adds the gradients of a batch of `samples` to the parameters.

        The first stage has `x`, the last one `y` and returns the mean loss and the output.
        """
        self.total = total
        losses: list[Tensor] = []
        outputs: list[Tensor] = []
        whole = samples - samples % self.size
        with self.times.waiting():
            for start, end, size in ((0, whole, self.size), (whole, samples, samples - whole)):
                if end > start:
                    count = (end - start) // size
                    self._pass(_rows(x, start, end), _rows(y, start, end), count, size, losses, outputs)
        if not self.is_last:
            return None
        return torch.stack(losses).sum() * (total / samples / self.averaged_over), torch.cat(outputs)

    def _pass(
        self, x: Tensor | None, y: Tensor | None, count: int, size: int, losses: list[Tensor], outputs: list[Tensor]
    ) -> None:  # fmt: skip
        if self.stages == 1:
            assert x is not None and y is not None
            for part, target in zip(x.split(size), y.split(size), strict=True):
                self._one_process(part, target, losses, outputs)
            return
        found: list[Tensor] = []
        arguments = [x] if self.is_first else []
        target = {"target": y, "losses": found} if self.is_last else {}
        output = self._schedule(count, size).step(*arguments, **target, return_outputs=self.is_last)
        losses += [loss.detach() for loss in found]
        if isinstance(output, Tensor):
            outputs.append(output.detach())

    def _one_process(self, x: Tensor, y: Tensor, losses: list[Tensor], outputs: list[Tensor]) -> None:
        with self.times.span("forward"):
            output = self.segment(x)
        loss = self.loss(output, y)
        self.times.passes += 1
        with self.times.span("backward"):
            loss.backward()
        losses.append(loss.detach())
        outputs.append(output.detach())

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """The loss of a micro-batch, weighted by its share of the samples of the step."""
        with self.times.span("forward"):
            return self.phase.loss_of(output, target)[0] * (self.averaged_over * len(target) / self.total)

    def pass_nothing(self, example: Tensor, count: int) -> None:
        """Passes without a gradient: with sharded parameters, all replicas make as many passes as the one with most."""
        for _ in range(count):
            with self.times.waiting():
                output = self.segment.eval()(example)
                (output.sum() * 0.0).backward()
                self.segment.train()

    def _schedule(self, count: int, size: int) -> ScheduleGPipe | Schedule1F1B:
        if (count, size) not in self._schedules:
            assert self.shapes is not None
            inputs, outputs = (_batched(shape, size) for shape in self.shapes)
            made = TimedStage(
                self.segment, self.stage, self.stages, torch.device("cpu"),
                input_args=inputs if self.is_first else _differentiable(inputs), output_args=_differentiable(outputs),
                group=self.group,
            )  # fmt: skip
            made.times = self.times
            # With fewer micro-batches than stages the two orders are the same.
            kind = Schedule1F1B if self.schedule == "1f1b" and count >= self.stages else ScheduleGPipe
            self._schedules[count, size] = kind(made, count, loss_fn=self.loss, scale_grads=False)
        return self._schedules[count, size]


def _rows(batch: Tensor | None, start: int, end: int) -> Tensor | None:
    return None if batch is None else batch[start:end]


def _batched(shape: Tensor, size: int) -> Tensor:
    """`shape` is that of one sample; of several in the first dimension, that of a micro-batch is a multiple."""
    return torch.empty((shape.shape[0] * size, *shape.shape[1:]), dtype=shape.dtype)


def _differentiable(tensor: Tensor) -> Tensor:
    return tensor.requires_grad_() if tensor.is_floating_point() else tensor
