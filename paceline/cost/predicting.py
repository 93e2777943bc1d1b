"""Predicts an iteration of a workload on a device that was calibrated, or is similar to one that was."""

from __future__ import annotations

import functools
import json
import re
from dataclasses import replace
from math import prod
from pathlib import Path

from paceline import record
from paceline.cluster import Device, find_device
from paceline.cost.calibration import Calibration, StepOverheads, overheads_key
from paceline.cost.calibrations import load_calibration, local_calibration
from paceline.cost.compiled_ratio import as_compiled, network_kind, ratio_for
from paceline.cost.device_calibration import ResolvedDevice, calibration_of_device, data_sheet_of, with_precision
from paceline.cost.iteration import Drift, compose_iteration, update_alone_s
from paceline.cost.memory import memory_bytes
from paceline.cost.model import model_for, run_threads
from paceline.cost.op_tracing import NetworkShape
from paceline.cost.own_operations import with_own
from paceline.cost.prediction import Prediction
from paceline.cost.workload_tracing import DataShape, chain_operations, data_shape_of, is_chain, trace_workload
from paceline.cost.workspaces import workspaces_of
from paceline.errors import InputError, nearest
from paceline.step.phase import AUTOCAST
from paceline.step.step import has_own_code
from paceline.workload import STEPS, TUNE, Workload

Traces = dict[tuple[str, bool, int], NetworkShape]
"""By workload, whether it is for a GPU, and the processes that linear layers are divided among."""
MOST_GROWN = 4096
"""Larger batches are not compared with twice their size."""
HERE = re.compile(r"auto|cpu|cuda(:[0-9]+)?")
"""Names of devices of this machine."""


def predict(
    workload: Workload,
    device: Device | Calibration | str | None = None,
    *,
    step: str = "auto",
    data: DataShape | None = None,
    drift: Drift | None = None,
    traces: Traces | None = None,
    tensor: int = 1,
) -> Prediction:
    """`device`: a calibration or its file, a device or its catalogue name; None, `auto`, `cpu`, `cuda` or `cuda:N` for
    a calibrated device of this machine.

    `drift` is the slowdown of the machine since it was calibrated, by probe, where known. `traces` keeps traces of the
    user's own networks for the next prediction with the same dictionary. `tensor`: the share of one of this many
    processes that linear layers are divided among, without what they exchange.
    """
    calibration, name, basis, extra_log_sd = _resolved(device, workload)
    data = data or data_shape_of(workload)
    on_gpu = calibration.device == "cuda"
    shape = _read(workload, data, on_gpu, {} if traces is None else traces, tensor)
    kind = _step_kind(step, on_gpu)
    if kind == "compiled":
        networks = network_kind(shape.operations)
        found = ratio_for(calibration, networks, workload.precision)
        base = predict(workload, device, step=found.step, data=data, drift=drift, traces=traces, tensor=tensor)
        return as_compiled(base, found, networks)
    chain = kind in ("flat", "graph") and is_chain(shape, workload)
    operations = chain_operations(shape.operations, on_gpu) if chain else list(shape.operations)
    calibration = with_own(calibration, operations, run_threads(calibration, workload, shape))
    model = model_for(calibration, workload, shape)
    step_overheads = _step_overheads(calibration, kind, chain, workload.precision, model.set.threads)
    made = compose_iteration(
        model, step_overheads, shape, model.cost(operations),
        step="chain" if chain and not on_gpu else kind,
        update_s=update_alone_s(model, shape, kind, on_gpu),
        sample_elements=workload.batch * prod(data.shape), on_gpu=on_gpu, drift=drift, extra_log_sd=extra_log_sd,
    )  # fmt: skip
    if _grows(calibration, workload, model.set.threads, extra_log_sd):
        twice = replace(workload, batch=2 * workload.batch)
        made = made.at_most(
            predict(twice, device, step=step, data=data, drift=drift, traces=traces, tensor=tensor).iteration_s
        )
    return Prediction(
        workload.network, workload.batch, name, kind, workload.precision, model.set.threads,
        made.seconds, made.low_s, made.high_s, made.parts_s, made.layers,
        roofline_s=model.roofline_s(shape.operations),
        memory_bytes=memory_bytes(
            shape, workload, data, step=kind, on_gpu=on_gpu, device_bytes=calibration.memory_bytes,
            workspaces=workspaces_of(model, shape.operations) if on_gpu else (),
        ),
        parameter_bytes=shape.parameter_bytes, samples=data.samples, basis=basis,
        unknown=model.unknown(shape.operations),
        conditions={
            "data": workload.data, "optimizer": workload.optimizer, "calibrated on": calibration.device_name,
            **({"device memory": str(calibration.memory_bytes)} if calibration.memory_bytes else {}),
        },
        exchange=tuple(replace(cost, cores=cost.cores or calibration.cores) for cost in calibration.exchange),
    )  # fmt: skip


def _grows(calibration: Calibration, workload: Workload, threads: int, extra_log_sd: float) -> bool:
    """Whether a larger batch would have more threads, on a CPU that was not calibrated itself. Then the iteration takes
    no longer than one of twice the batch: threads are added for more work, not to finish earlier."""
    automatic = calibration.device == "cpu" and not workload.threads and threads < calibration.cores
    return automatic and extra_log_sd > 0 and workload.batch < MOST_GROWN


@functools.lru_cache(maxsize=256)
def _read_cached(key: str, data: DataShape, on_gpu: bool, tensor: int) -> NetworkShape:
    return trace_workload(Workload(**json.loads(key)), data, on_gpu=on_gpu, tensor=tensor)


def _read(workload: Workload, data: DataShape, on_gpu: bool, traces: Traces, tensor: int) -> NetworkShape:
    """Cached, because tracing a network again for every device of a catalogue would dominate the time. The user's own
    code may give another network the next time, so its traces are kept only as long as the caller wants."""
    precision = workload.precision if workload.precision in AUTOCAST else "float32"
    plain = replace(workload, device="auto", precision=precision, threads=0, seed=0)
    key = json.dumps(record.to_json(plain), sort_keys=True)
    if not has_own_code(workload):
        return _read_cached(key, data, on_gpu, tensor)
    known = key, on_gpu, tensor
    if known not in traces:
        traces[known] = trace_workload(workload, data, on_gpu=on_gpu, tensor=tensor)
    return traces[known]


def _resolved(device: Device | Calibration | str | None, workload: Workload) -> ResolvedDevice:
    """The calibration, the device's name, the basis of the calibration, and the extra uncertainty."""
    if isinstance(device, str) and not HERE.fullmatch(device):
        if Path(device).suffix == ".json" or Path(device).is_file():
            found = load_calibration(Path(device))
            known = found, found.device_name, f"calibrated: {Path(device).name}", 0.0
            return with_precision(known, data_sheet_of(found), workload.precision)
        device = find_device(device)
    if isinstance(device, Device):
        return calibration_of_device(device, workload.precision)
    if isinstance(device, Calibration):
        known = device, device.device_name, "calibrated", 0.0
    else:
        found = local_calibration(device or workload.device)
        known = found, found.device_name, "calibrated here", 0.0
    return with_precision(known, data_sheet_of(known[0]), workload.precision)


def _step_kind(step: str, on_gpu: bool) -> str:
    if step == TUNE:
        raise InputError("step 'tune' is for training: it is tried out in a run; predict the kind of step it took")
    if step not in STEPS:
        raise InputError(f"step {step!r} is unknown: {nearest(step, STEPS)}")
    if step == "auto":
        return "graph" if on_gpu else "flat"
    if step == "graph" and not on_gpu:
        raise InputError("step 'graph' needs a GPU: predict step flat on a CPU")
    return step


def _step_overheads(calibration: Calibration, step: str, chain: bool, precision: str, threads: int) -> StepOverheads:
    """Those of the step, or of the one most like it that was calibrated."""
    known = calibration.step_overheads
    like = {"plain": ("plain", "flat"), "flat": ("flat", "plain")}.get(step, (step,))
    wanted = [
        overheads_key(name, written_out, number, count)
        for number in dict.fromkeys((precision, "bfloat16" if precision == "float16" else "float32", "float32"))
        for written_out in ((True, False) if chain else (False,))
        for count in ((1, 0) if threads == 1 else (0, 1))
        for name in like
    ]
    return next((known[key] for key in (*wanted, "flat", "graph") if key in known), StepOverheads())
