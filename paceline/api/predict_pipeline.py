"""`paceline.predict_pipeline`: the step of a network that is divided into stages, before running it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.api.predict import workers_calibration
from paceline.api.settings import check_whole, split
from paceline.given_workload import given_workload
from paceline.training.settings import ParallelSettings

if TYPE_CHECKING:
    from paceline.cluster import Device
    from paceline.cost.calibration import Calibration
    from paceline.given_workload import WorkloadLike
    from paceline.simulation.pipeline_prediction import PipelinePrediction
    from paceline.simulation.placement import Placement


def predict_pipeline(
    workload: WorkloadLike,
    device: str | Path | Device | Calibration | None = None,
    *,
    pipeline: int = 2,
    microbatches: int | None = None,
    pipeline_schedule: str = "1f1b",
    workers: int = 1,
    link: str | None = None,
    **settings: Any,
) -> PipelinePrediction:
    """Predict a step of a pipeline: the cut, each stage's time, idle share and memory, and what is sent.

    `workload`, its settings and `device` are as for `paceline.predict`; `pipeline`, `microbatches` and
    `pipeline_schedule` as for `paceline.train`. `link` connects the devices (see `paceline.links`); by default they
    are processes of this machine, which must have been calibrated. `workers` are copies of the pipeline.

    >>> made = paceline.predict_pipeline("vgg11", "H200", data="synthetic:3x64x64/10:1000", link="NVLink 4")
    >>> len(made.stages), made.idle_share < 0.5
    (2, True)
    """
    from paceline.cost.piece_tracing import trace_pieces
    from paceline.cost.predicting import predict
    from paceline.cost.workload_tracing import data_shape_of
    from paceline.simulation.pipeline_stages import predict_stages

    own, _ = split(settings, predict_pipeline)
    check_whole(workers, "workers", 1)
    parallel = ParallelSettings(pipeline, microbatches, pipeline_schedule)
    where = str(device) if isinstance(device, Path) else device
    with given_workload(workload, own) as whole:
        parallel.check_batch(whole.batch)
        count, data = parallel.microbatches_of(whole.batch), data_shape_of(whole)
        micro = replace(whole, batch=whole.batch // count, accumulate=1)
        placement, threads = placement_of_processes(where, workers * pipeline, link)
        if threads:
            micro = replace(micro, threads=threads)
        made = predict(micro, where, step="plain", data=data)
        return predict_stages(
            whole, made, trace_pieces(micro, data), placement,
            stages=pipeline, microbatches=count, schedule=pipeline_schedule,
        )  # fmt: skip


def placement_of_processes(
    device: str | Device | Calibration | None, processes: int, link: str | None
) -> tuple[Placement, int]:
    """Where the processes are, and the threads of each of them if that is decided here."""
    from paceline.cluster import Device, DeviceCount, Machine, find_link
    from paceline.cost.calibration import Calibration
    from paceline.cost.this_machine import machine_of
    from paceline.simulation.placement import Placement

    if link is not None:
        between = find_link(link)
        one = device if isinstance(device, Device) else Device("device", "gpu")
        machine = Machine("devices", (DeviceCount(one, processes),), host_device=between, device_device=between)
        return Placement(machine, processes, processes, True), 0
    named = device if isinstance(device, str) else None
    local = device if isinstance(device, Calibration) else workers_calibration(named)
    machine, on_gpu = machine_of(local), local.device == "cuda"
    return Placement(machine, processes, processes, on_gpu), 0 if on_gpu else max(1, local.cores // processes)
