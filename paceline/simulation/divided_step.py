"""Predicts a step where linear layers are divided by feature (tensor parallelism) or parameters are sharded (FSDP2)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from paceline.cost.exchange_tracing import LayerExchange
from paceline.cost.memory import CPU_OVERHEAD, training_bytes
from paceline.cost.piece_times import piece_times
from paceline.cost.piece_tracing import PieceShape
from paceline.cost.prediction import Prediction
from paceline.errors import InputError
from paceline.simulation.collective_schedule import CollectiveOutcome, LayerPass, simulate_passes
from paceline.simulation.divided_prediction import DividedLayer, DividedPrediction
from paceline.simulation.placement import Placement
from paceline.workload import Workload


def predict_tensor(
    workload: Workload, share: Prediction, exchanges: Sequence[LayerExchange], placement: Placement, *, tensor: int
) -> DividedPrediction:
    """`share` is the prediction of one process's share of the network; `placement` has a worker for each process."""
    slower, replicas = _slowdown(share, placement), placement.workers // tensor
    by_layer = {one.layer: one for one in exchanges}
    forward, backward, layers = [], [], []
    for layer in share.layers:
        own = by_layer.get(layer.name, LayerExchange(layer.name))
        after_s = placement.all_reduce_s(own.summed_bytes, tensor) if own.summed_bytes else 0.0
        after_s += placement.all_gather_s(own.gathered_bytes // tensor, tensor) if own.gathered_bytes else 0.0
        back_s = placement.all_reduce_s(own.gradient_bytes, tensor) if own.gradient_bytes else 0.0
        forward.append(LayerPass(layer.name, "forward", slower * layer.forward_s, after_s=after_s))
        backward.append(LayerPass(layer.name, "backward", slower * layer.backward_s, after_s=back_s))
        sent = _reduced(own.summed_bytes + own.gradient_bytes, tensor) + _gathered(own.gathered_bytes, tensor)
        times = slower * layer.forward_s, slower * layer.backward_s
        layers.append(DividedLayer(layer.name, *times, after_s + back_s, sent))
    found = simulate_passes([*forward, *reversed(backward)], overlap=False)
    averaging_s = placement.all_reduce_s(share.parameter_bytes, replicas) if replicas > 1 else 0.0
    return _made(
        workload, share, found, layers, replicas=replicas, tensor=tensor, shard="none", slower=slower,
        update_s=share.parts_s.get("update", 0.0), averaging_s=averaging_s, parameter_bytes=share.parameter_bytes,
        averaged_bytes=_reduced(share.parameter_bytes, replicas), memory_bytes=share.memory_bytes,
    )  # fmt: skip


def predict_fsdp(
    workload: Workload, whole: Prediction, pieces: Sequence[PieceShape], placement: Placement
) -> DividedPrediction:
    """`whole` is the prediction of one process that has all parameters; `pieces` are gathered one by one."""
    copies = placement.workers
    if copies < 2:
        raise InputError("`shard='fsdp'` divides a network among `workers=2` or more")
    slower = _slowdown(whole, placement)
    forward, backward, layers = [], [], []
    times = piece_times(whole, [piece.names for piece in pieces])
    for piece, time in zip(pieces, times, strict=True):
        name, size = piece.names[0] or workload.network, piece.parameter_bytes
        # A reduce-scatter sends as much as an all-gather.
        each_s = placement.all_gather_s(-(-size // copies), copies) if size else 0.0
        forward.append(LayerPass(name, "forward", slower * time.forward_s, before_s=each_s))
        backward.append(LayerPass(name, "backward", slower * time.backward_s, before_s=each_s, after_s=each_s))
        sent = 3 * _gathered(size, copies)
        layers.append(DividedLayer(name, slower * time.forward_s, slower * time.backward_s, 3 * each_s, sent))
    found = simulate_passes([*forward, *reversed(backward)], overlap=placement.on_gpu)
    own_bytes = -(-sum(piece.parameter_bytes for piece in pieces) // copies)
    return _made(
        workload, whole, found, layers, replicas=copies, tensor=1, shard="fsdp", slower=slower,
        update_s=sum((time.update_s for time in times), 0.0) / copies, averaging_s=0.0, averaged_bytes=0,
        parameter_bytes=own_bytes, memory_bytes=_sharded_bytes(workload, pieces, own_bytes, placement.on_gpu),
    )  # fmt: skip


def _made(
    workload: Workload, computed: Prediction, found: CollectiveOutcome, layers: Sequence[DividedLayer], *,
    replicas: int, tensor: int, shard: str, slower: float, update_s: float, averaging_s: float, averaged_bytes: int,
    parameter_bytes: int, memory_bytes: int,
) -> DividedPrediction:  # fmt: skip
    passes_and_update = ("forward", "backward", "update")
    rest_s = computed.iteration_s - sum(computed.parts_s.get(part, 0.0) for part in passes_and_update)
    step_s = found.seconds + slower * (update_s + rest_s) + averaging_s
    low, high = (bound / computed.iteration_s for bound in (computed.low_s, computed.high_s))
    return DividedPrediction(
        workload.network, workload.batch, computed.device, replicas, tensor, shard, step_s, step_s * low,
        step_s * high, found.compute_s, found.exposed_s + averaging_s, memory_bytes, parameter_bytes,
        sum(layer.sent_bytes for layer in layers) + averaged_bytes, tuple(layers), computed.samples, computed.basis,
        found.trace,
    )  # fmt: skip


def _sharded_bytes(workload: Workload, pieces: Sequence[PieceShape], own_bytes: int, on_gpu: bool) -> int:
    """The shard, activations, and what is whole at a time: the parameters of a piece and of the next one that is
    gathered ahead, and the gradients of a piece with the copy that is scattered."""
    sizes = [piece.parameter_bytes for piece in pieces if piece.parameter_bytes]
    whole = max((one + other for one, other in pairwise(sizes)), default=sum(sizes)) + 2 * max(sizes, default=0)
    activations = sum(piece.activation_bytes for piece in pieces)
    return training_bytes(own_bytes, activations, workload, on_gpu) + int(CPU_OVERHEAD * whole)


def _slowdown(made: Prediction, placement: Placement) -> float:
    return placement.slowdown(placement.on_one * max(1, made.threads))


def _gathered(size_bytes: int, members: int) -> int:
    """Sent by each member of an all-gather or a reduce-scatter of `size_bytes` in all."""
    return size_bytes * (members - 1) // members


def _reduced(size_bytes: int, members: int) -> int:
    """Sent by each member of an all-reduce: a reduce-scatter and an all-gather."""
    return 2 * _gathered(size_bytes, members)
