"""One process of a divided network: it has some of the layers, and trains them on its micro-batches."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from datetime import timedelta
from itertools import chain, count, islice
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from paceline.data.dataset import Dataset
from paceline.errors import NetworkError
from paceline.step.build import build_network, example_of, load_data
from paceline.step.clipping import clip_coefficient
from paceline.step.feeder import make_feeder
from paceline.step.optimizers import torch_optimizer
from paceline.step.order import Order
from paceline.step.phase import Batch, LossPhase
from paceline.step.pieces import Piece, Segment, one_piece, piece_outputs, pieces_of
from paceline.step.placement import dtype_of, set_number_formats
from paceline.step.randomness import default_generator
from paceline.step.schedule import rate_at
from paceline.step.step import has_own_code, step_seed
from paceline.step.tally import Score, Tally
from paceline.training.division import ProcessRecord
from paceline.training.drivers.model_parallel.messages import Advance, Advanced, Begin, Collect, Ready, WholeState
from paceline.training.drivers.model_parallel.passes import Passes
from paceline.training.drivers.model_parallel.process_settings import DividedSettings
from paceline.training.drivers.model_parallel.rehearsal import (
    MICROBATCHES_PER_STAGE,
    Rehearsal,
    rehearse,
    short_steps_of,
)
from paceline.training.drivers.model_parallel.stage_state import StageState, joined
from paceline.training.drivers.model_parallel.stage_times import StageTimes
from paceline.training.drivers.model_parallel.tensor_parallel import divide_by_feature
from paceline.workload import Workload

CPU = torch.device("cpu")


class StageProcess:
    def __init__(self, settings: DividedSettings) -> None:
        self.settings, self.workload = settings, settings.workload
        dataset = load_data(self.workload, Path(settings.cache) if settings.cache else None)
        set_number_formats(self.workload, CPU)
        self._join()
        network = build_network(self.workload, dataset).train()
        example = example_of(self.workload, dataset, 2)
        assert isinstance(example, Tensor), "the launcher refuses several inputs"
        if settings.parallel.tensor > 1:
            divide_by_feature(self.workload.network, network, self.mesh["part"])
        pieces = chain_of(self.workload, network, example, settings.parallel.pipeline)
        self.times, self.example = StageTimes(), example
        self.phase = LossPhase(network, self.workload)
        self.passes = self._passes(pieces, example)
        self._forget_others(pieces)
        if settings.is_sharded:
            self._shard()
        self.phase.parameters = [
            p for p in network.parameters() if p.requires_grad and p.device.type != "meta"
        ]  # those before are divided by now, or other stages'
        self.state = StageState(
            network, self.phase.parameters, first_copy=settings.replica == 0, first_part=settings.part == 0
        )
        self.optimizer = self._new_optimizer()
        self._begin_feeding(dataset)

    def _join(self) -> None:
        settings = self.settings
        distributed.init_process_group(
            "gloo", init_method=f"file://{settings.rendezvous}", rank=settings.rank, world_size=settings.world,
            timeout=timedelta(seconds=settings.timeout_s),
        )  # fmt: skip
        self.mesh = init_device_mesh("cpu", settings.mesh_shape, mesh_dim_names=("replica", "stage", "part"))

    def _passes(self, pieces: list[Piece], example: Tensor) -> Passes:
        settings, parallel = self.settings, self.settings.parallel
        first, end = self.bounds(len(pieces))
        segment = Segment(pieces[first:end], first, default_generator(CPU))
        shapes = None
        if parallel.pipeline > 1:
            outputs = [example, *piece_outputs(pieces, example)]
            one, other = (tensor[: tensor.shape[0] // len(example)] for tensor in (outputs[first], outputs[end]))
            shapes = one.to("meta"), other
        return Passes(
            segment, self.phase, self.times, stage=settings.stage, stages=parallel.pipeline,
            size=self.workload.batch // parallel.microbatches_of(self.workload.batch),
            schedule=parallel.pipeline_schedule, group=self.mesh.get_group("stage"), shapes=shapes,
            averaged_over=settings.replicas if settings.is_sharded else 1,
        )  # fmt: skip

    def bounds(self, pieces: int) -> tuple[int, int]:
        ends = (*self.settings.cut[1:], pieces)
        return self.settings.cut[self.settings.stage], ends[self.settings.stage]

    def _shard(self) -> None:
        """Parameters, gradients and optimizer state are divided among the replicas, piece by piece."""
        for piece in self.passes.segment.pieces:
            if any(True for _ in piece.parameters()):
                fully_shard(piece, mesh=self.mesh["replica"])
        fully_shard(self.passes.segment, mesh=self.mesh["replica"])

    def _forget_others(self, pieces: list[Piece]) -> None:
        """Gives back the memory of layers that other stages have."""
        first, end = self.bounds(len(pieces))
        self.phase.parameters = []
        self.layers = tuple(piece.name for piece in pieces[first:end])
        for piece in (*pieces[:first], *pieces[end:]):
            piece.to("meta")

    def _begin_feeding(self, dataset: Dataset) -> None:
        settings, workload = self.settings, self.workload
        self.order = Order(len(dataset.train), workload.batch, workload.seed, settings.replica, settings.replicas)
        needed = self.passes.is_first or self.passes.is_last
        self.feeder = (
            make_feeder(dataset, self.order, CPU, dtype_of(workload), training=True, readers=1) if needed else None
        )
        self.batches: Iterator[Batch] = iter(())
        self.epoch = self.next = 0

    # What the launcher asks for

    def ready(self) -> Ready:
        rehearsal = self._rehearse() if self.passes.stages > 1 else None
        distributed.barrier()
        return Ready(rehearsal)

    def _rehearse(self) -> Rehearsal:
        """Parameters and buffers are afterwards what they were, and the optimizer is a new one."""
        kept = [*self.phase.parameters, *self.passes.segment.buffers()]
        before = [tensor.detach().clone() for tensor in kept]
        whole = round_sizes(self.order, 0)
        microbatches = max(1, min(MICROBATCHES_PER_STAGE * self.passes.stages, min(whole) // self.passes.size))
        feeder = self.feeder
        if feeder is not None:
            full = max(1, self.order.samples // self.order.batch // self.order.workers)
            self.batches = chain.from_iterable(islice(feeder.batches(0), full) for _ in count())

        def step(sizes: list[int]) -> float:
            began_s = perf_counter()
            self._step(Tally(self.workload.top), sizes)
            return perf_counter() - began_s

        short = [min(microbatches * self.passes.size, size) for size in whole]
        for sizes in (whole, short):  # the first step with a schedule takes longer
            step(sizes)
        longest_s = torch.tensor(step(short), dtype=torch.float64)
        distributed.all_reduce(longest_s, distributed.ReduceOp.MAX)
        found = rehearse(
            lambda: step(short), self.times, microbatches, short_steps_of(longest_s.item()),
            is_first=self.passes.is_first,
        )  # fmt: skip
        self.times.forget()
        self.batches = iter(())
        with torch.no_grad():
            for tensor, value in zip(kept, before, strict=True):
                tensor.copy_(value)
        self.optimizer = self._new_optimizer()
        return found

    def _new_optimizer(self) -> torch.optim.Optimizer:
        return torch_optimizer(self.phase.rule, list(self.phase.parameters))

    def answer(self, asked: Any) -> Any:
        if isinstance(asked, Begin):
            self.epoch, self.next = asked.epoch, asked.first
            if self.feeder is not None:
                self.batches = self.feeder.batches(asked.epoch, asked.first)
            return Ready()
        if isinstance(asked, Advance):
            return self._advance(asked.steps)
        if isinstance(asked, Collect):
            return self.state.collect(asked, self.optimizer)
        assert isinstance(asked, WholeState)
        self.state.load(asked, self.optimizer)
        return Ready()

    def _advance(self, steps: int) -> Advanced:
        tally = Tally(self.workload.top)
        for _ in range(steps):
            self._step(tally, round_sizes(self.order, self.next))
            self.next += 1
        with self.times.waiting():  # the others may still have backward passes of the last step to do
            distributed.barrier()
        return Advanced(tally.read() if self.settings.part == 0 else Score(), self._record(), self.times.take_spans())

    def _record(self) -> ProcessRecord:
        times, seconds = self.times, self.times.seconds
        return ProcessRecord(
            self.settings.replica, self.settings.stage, self.layers,
            sum(own_part(p).numel() for p in self.phase.parameters),
            seconds["forward"], seconds["backward"], seconds["update"], seconds["communicate"], seconds["load"],
            times.idle_s, times.passes, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        )  # fmt: skip

    # One step

    def _step(self, tally: Tally, sizes: list[int]) -> None:
        """`sizes`: samples of each replica, the first ones of its next batch."""
        samples = sizes[self.settings.replica]
        self.optimizer.zero_grad()
        if samples:
            with self.times.span("load"):
                x, y = next(self.batches) if self.feeder is not None else (None, None)
            seed = step_seed(self.workload.seed, self.settings.replica, self.epoch, self.next)
            self.passes.segment.begin(seed)
            assert x is None or isinstance(x, Tensor)
            found = self.passes.run(x, y, samples, sum(sizes))
            if found is not None and y is not None:
                tally.add(found[0], found[1], y[:samples])
        if self.settings.is_sharded:
            counts = [-(-size // self.passes.size) for size in sizes]
            self.passes.pass_nothing(self.example, max(counts) - counts[self.settings.replica])
        with self.times.span("communicate"):
            self._sum_gradients()
        with self.times.span("update"):
            self._update()

    def _sum_gradients(self) -> None:
        """Over replicas; each has counted its samples as parts of all of them."""
        if self.settings.replicas == 1 or self.settings.is_sharded:  # sharded ones are added up during the passes
            return
        for parameter in self.phase.parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        gradients = [own_part(p.grad) for p in self.phase.parameters if p.grad is not None]
        vector = torch.cat([gradient.flatten() for gradient in gradients])
        distributed.all_reduce(vector, group=self.mesh.get_group("replica"))
        for gradient, total in zip(gradients, vector.split([g.numel() for g in gradients]), strict=True):
            gradient.copy_(total.view_as(gradient))

    def _update(self) -> None:
        rule, gradients = self.phase.rule, [p.grad for p in self.phase.parameters if p.grad is not None]
        if rule.clip_norm:
            squares = torch.stack([joined(gradient.double().square().sum()) for gradient in gradients]).sum()
            distributed.all_reduce(squares, group=self.mesh.get_group("stage"))
            coefficient = clip_coefficient(squares.sqrt(), rule.clip_norm).item()
            for gradient in gradients:
                gradient.mul_(coefficient)
        if rule.l1:
            for parameter in self.phase.parameters:
                if parameter.grad is not None:
                    parameter.grad.add_(parameter.detach().sign(), alpha=rule.l1)
        for group in self.optimizer.param_groups:
            done = self.next * self.settings.replicas  # schedules count batches, with any number of workers
            group["lr"] = rate_at(rule, self.epoch, done, self.order.all_batches, self.workload.epochs)
        self.optimizer.step()


def own_part(tensor: Tensor) -> Tensor:
    """What this process has of a tensor that may be divided."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def chain_of(workload: Workload, network: nn.Module, example: Tensor, stages: int) -> list[Piece]:
    """The pieces of a network; one that is not cut may be a single piece."""
    random = has_own_code(workload)
    try:
        return pieces_of(workload.network, network, example, random=random)
    except NetworkError:
        if stages > 1:
            raise
        return one_piece(network, random=random)


def round_sizes(order: Order, number: int) -> list[int]:
    """Samples of each replica in one update: the next batch of each; at the end of an epoch some have none left."""
    first = number * order.workers
    return [
        max(0, min(order.batch, order.samples - batch * order.batch)) for batch in range(first, first + order.workers)
    ]
