"""Predicts a pipeline: the cut, the time of a step with its bubble and traffic, and the memory of each stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from paceline.cost.memory import training_bytes
from paceline.cost.partition import balanced_cut
from paceline.cost.piece_times import PieceTime, piece_times, stage_times
from paceline.cost.piece_tracing import PieceShape
from paceline.cost.prediction import Prediction
from paceline.errors import InputError
from paceline.notebook import NotebookRecord
from paceline.simulation.pipeline_schedule import simulate_schedule
from paceline.simulation.placement import Placement
from paceline.trace import Trace
from paceline.workload import Workload


@dataclass(frozen=True)
class StagePrediction:
    layers: tuple[str, ...]
    forward_s: float
    """Of one micro-batch."""
    backward_s: float
    update_s: float
    idle_share: float
    """Of the time from the first forward pass to the last backward pass of a step."""
    parameter_bytes: int
    memory_bytes: int
    """Parameters, gradients, optimizer state, and activations of the micro-batches that it keeps at a time."""
    sent_bytes: int
    """Activations and their gradients that it sends in a step."""


@dataclass(frozen=True, repr=False)
class PipelinePrediction(NotebookRecord):
    name: str
    batch: int
    device: str
    replicas: int
    """Copies of the pipeline, each with a batch of its own."""
    microbatches: int
    schedule: str
    step_s: float
    low_s: float
    """Lower end of the 90 % interval of `step_s`, from the uncertainty of compute times."""
    high_s: float
    passes_s: float
    """From the first forward pass to the last backward pass."""
    exchange_s: float
    """Averaging gradients over copies."""
    idle_share: float
    """The bubble, on average over stages."""
    stages: tuple[StagePrediction, ...]
    samples: int
    """Samples per epoch; 0 if unknown."""
    basis: str
    trace: Trace
    """One step in virtual time."""

    @property
    def memory_bytes(self) -> int:
        """Of the stage that needs most."""
        return max(stage.memory_bytes for stage in self.stages)

    @property
    def samples_per_s(self) -> float:
        return self.replicas * self.batch / self.step_s

    @property
    def epoch_s(self) -> float:
        return -(-self.samples // (self.batch * self.replicas)) * self.step_s

    def facts(self) -> dict[str, Any]:
        return {
            "network": self.name, "batch": self.batch, "device": self.device, "stages": len(self.stages),
            "microbatches": self.microbatches, "schedule": self.schedule, "step_s": self.step_s, "low_s": self.low_s,
            "high_s": self.high_s, "idle_share": self.idle_share, "memory_bytes": self.memory_bytes,
            "samples/s": self.samples_per_s, "basis": self.basis,
        }  # fmt: skip

    def table(self) -> list[dict[str, Any]]:
        return [
            {"stage": number, "first layer": stage.layers[0], "last layer": stage.layers[-1], **vars(stage)}
            | {"layers": len(stage.layers)}
            for number, stage in enumerate(self.stages, start=1)
        ]


def predict_stages(
    workload: Workload, micro: Prediction, pieces: Sequence[PieceShape], placement: Placement, *,
    stages: int, microbatches: int, schedule: str,
) -> PipelinePrediction:  # fmt: skip
    """`micro` and `pieces` are those of one micro-batch; `placement` has a worker for each process."""
    if len(pieces) < stages:
        raise InputError(f"{workload.network} has {len(pieces)} layers, too few for `pipeline={stages}`")
    replicas = placement.workers // stages
    slower = placement.slowdown(placement.on_one * max(1, micro.threads))
    each = [_slowed(time, slower) for time in piece_times(micro, [piece.names for piece in pieces])]
    cut = balanced_cut([time.pass_s for time in each], stages)
    times = stage_times(each, cut)
    ends = (*cut[1:], len(pieces))
    handed = [pieces[end - 1].output_bytes for end in ends[:-1]]
    found = simulate_schedule(times, microbatches, schedule, [_handover_s(size, placement) for size in handed])
    made = []
    for number, (first, end) in enumerate(zip(cut, ends, strict=True)):
        own = pieces[first:end]
        parameters = sum(piece.parameter_bytes for piece in own)
        received = handed[number - 1] if number else 0
        activations = (sum(piece.activation_bytes for piece in own) + received) * found.in_flight[number]
        sent = (handed[number] if number < stages - 1 else 0) + received
        made.append(StagePrediction(
            tuple(name for piece in own for name in piece.names), times[number].forward_s, times[number].backward_s,
            times[number].update_s, found.idle_shares[number], parameters,
            training_bytes(parameters, activations, replace(workload, accumulate=microbatches), placement.on_gpu),
            sent * microbatches,
        ))  # fmt: skip
    exchange_s = max((placement.all_reduce_s(stage.parameter_bytes, replicas) for stage in made), default=0.0)
    load_s = slower * microbatches * micro.parts_s.get("load", 0.0)
    step_s = found.seconds + max(time.update_s for time in times) + load_s + (exchange_s if replicas > 1 else 0.0)
    low, high = (bound / micro.iteration_s for bound in (micro.low_s, micro.high_s))
    return PipelinePrediction(
        workload.network, workload.batch, micro.device, replicas, microbatches, schedule, step_s, step_s * low,
        step_s * high, found.seconds, exchange_s if replicas > 1 else 0.0, found.idle_share, tuple(made),
        micro.samples, micro.basis, found.trace,
    )  # fmt: skip


def _slowed(time: PieceTime, slower: float) -> PieceTime:
    return PieceTime(slower * time.forward_s, slower * time.backward_s, slower * time.update_s)


def _handover_s(size_bytes: int, placement: Placement) -> float:
    """From a stage to the next: in one machine, or between two."""
    link = placement.inside(size_bytes) if placement.together else placement.between()
    return link.seconds(size_bytes)
