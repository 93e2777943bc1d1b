"""`paceline.predict_divided`: a step with layers divided by feature or sharded parameters, before running it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.api.predict_pipeline import placement_of_processes
from paceline.api.settings import check_whole, split
from paceline.errors import InputError
from paceline.given_workload import given_workload
from paceline.training.settings import ParallelSettings

if TYPE_CHECKING:
    from paceline.cluster import Device
    from paceline.cost.calibration import Calibration
    from paceline.given_workload import WorkloadLike
    from paceline.simulation.divided_prediction import DividedPrediction


def predict_divided(
    workload: WorkloadLike,
    device: str | Path | Device | Calibration | None = None,
    *,
    tensor: int = 1,
    shard: str = "none",
    workers: int = 1,
    link: str | None = None,
    **settings: Any,
) -> DividedPrediction:
    """Predict a step of a network that is divided by feature or sharded: its time, traffic, and memory per device.

    `workload`, its settings and `device` are as for `paceline.predict`; `tensor`, `shard` and `workers` as for
    `paceline.train`. `link` connects the devices (see `paceline.links`); by default they are processes of this machine,
    which must have been calibrated.

    >>> made = paceline.predict_divided("vgg11", "H200", data="synthetic:3x64x64/10", tensor=2, link="NVLink 4")
    >>> whole = paceline.predict("vgg11", "H200", data="synthetic:3x64x64/10", step="plain")
    >>> made.parameter_bytes < whole.parameter_bytes
    True
    """
    from paceline.cost.exchange_tracing import trace_exchanges
    from paceline.cost.piece_tracing import trace_pieces
    from paceline.cost.predicting import predict
    from paceline.cost.workload_tracing import data_shape_of
    from paceline.simulation.divided_step import predict_fsdp, predict_tensor

    own, _ = split(settings, predict_divided)
    check_whole(workers, "workers", 1)
    parallel = ParallelSettings(tensor=tensor, shard=shard)
    if (tensor > 1) == (parallel.shard == "fsdp"):
        raise InputError("give either `tensor=2` or more, or `shard='fsdp'`: one of them is predicted at a time")
    where = str(device) if isinstance(device, Path) else device
    with given_workload(workload, own) as whole:
        placement, threads = placement_of_processes(where, workers * tensor, link)
        whole = replace(whole, threads=threads) if threads else whole
        data = data_shape_of(whole)
        made = predict(whole, where, step="plain", data=data, tensor=tensor)
        if tensor > 1:
            return predict_tensor(whole, made, trace_exchanges(whole, data, tensor), placement, tensor=tensor)
        return predict_fsdp(whole, made, trace_pieces(whole, data, cut=False), placement)
