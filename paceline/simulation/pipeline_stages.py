"""Predicts a pipeline: chooses the cut, simulates the schedule, and adds up the memory of each stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from paceline.cost.memory import training_bytes
from paceline.cost.partition import balanced_cut
from paceline.cost.piece_times import PieceTime, piece_times, stage_times
from paceline.cost.piece_tracing import PieceShape
from paceline.cost.prediction import Prediction
from paceline.errors import InputError
from paceline.simulation.pipeline_prediction import PipelinePrediction, StagePrediction
from paceline.simulation.pipeline_schedule import simulate_schedule
from paceline.simulation.placement import Placement
from paceline.workload import Workload


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
