"""The operations of one workload, each timed alone on this machine with the workload's own shapes.

A calibration samples sizes and interpolates between them; a network has sizes that no sample met. Where its operations
were timed themselves, only what the network adds to them has to be estimated, and that is fitted to reference networks
whose operations were timed in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch

from paceline.cost.calibration import Calibration, OwnOperations, OwnTrial
from paceline.cost.drift import usual_probes_s
from paceline.cost.model import run_threads
from paceline.cost.op_replay import TracedCall, TracedCalls
from paceline.cost.operation import Operation, OperationKey
from paceline.cost.reference_fit import with_references
from paceline.cost.timing import Stopwatch, probe_of
from paceline.cost.update_tracing import update_calls
from paceline.cost.workload_tracing import data_shape_of, trace_workload
from paceline.free_memory import free_memory_bytes
from paceline.measurement.network_times import NetworkTimes
from paceline.step.placement import cpu_settings_restored
from paceline.workload import Workload

RANDOM = ("bernoulli_", "bernoulli")
"""Dropout is traced as one operation of several calls, so its time is estimated."""
MEMORY_SHARE = 0.25
"""Of the free memory, for the tensors that an operation reads; its results need about as much."""


def with_own_operations(
    calibration: Calibration,
    workload: Workload,
    references: Sequence[NetworkTimes],
    watch: Callable[[float], None] = lambda _: None,
) -> Calibration:
    """The calibration with the operations of `workload`; `references` are its measured networks."""
    own = own_operations(workload, [each.workload for each in references], calibration, watch)
    fitted = with_references(replace(calibration, own=own), references)
    return replace(calibration, own=replace(own, step_overheads=fitted.step_overheads, cache_bytes=fitted.cache_bytes))


def own_operations(
    workload: Workload,
    references: Sequence[Workload],
    calibration: Calibration,
    watch: Callable[[float], None] = lambda _: None,
) -> OwnOperations:
    """Times the operations of `workload` and of reference networks, each as if the machine were as fast as usual."""
    calls: dict[int, TracedCalls] = {}
    usual_s = usual_probes_s(calibration.sets)
    for each in (workload, *references):
        traced: TracedCalls = {}
        shape = trace_workload(each, data_shape_of(each), calls=traced)
        for phase in shape.phases:
            if ":" not in phase.rule.optimizer:
                traced |= update_calls(phase.parameter_shapes, phase.rule, "flat")
        calls.setdefault(run_threads(calibration, each, shape), {}).update(traced)
    count, trials = sum(map(len, calls.values())), []
    for threads, traced in calls.items():
        with cpu_settings_restored(), torch.no_grad():
            torch.set_num_threads(threads)
            stopwatch = Stopwatch(torch.device("cpu"))
            for key, call in traced.items():
                trials.append(_timed(key, call, threads, stopwatch, usual_s.get(threads, {})))
                watch(len(trials) / count)
    return OwnOperations(f"{workload.network} at batch {workload.batch}", tuple(trials))


def _timed(
    key: OperationKey, call: TracedCall, threads: int, stopwatch: Stopwatch, usual: Mapping[str, float]
) -> OwnTrial:
    name, family, sizes, dtype, channels_last = key
    untimed = OwnTrial(name, family, sizes, dtype, channels_last, threads, 0.0, 0.0)
    if name in RANDOM or not call.is_safe or call.size_bytes > MEMORY_SHARE * free_memory_bytes():
        return untimed
    probe = probe_of(family)
    try:
        made = call.made()
        took = stopwatch.time(made, probe, made.fresh)
    except (RuntimeError, NotImplementedError, IndexError):  # it needs other values than those drawn
        return untimed
    drift = took.probe_s / usual.get(probe, took.probe_s)
    return replace(untimed, seconds=took.seconds / drift, cached_s=took.cached_s / drift)


def with_own(calibration: Calibration, operations: Sequence[Operation], threads: int) -> Calibration:
    """The calibration as it predicts a network of these operations: with what belongs to their own times, if they were
    timed, and otherwise without any."""
    own = calibration.own
    if own is not None and own.cover(operations, threads):
        return replace(calibration, step_overheads=own.step_overheads, cache_bytes=own.cache_bytes)
    return replace(calibration, own=None)
