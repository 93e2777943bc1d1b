"""Fits what a step adds to its operations to measured reference networks, and finds how far off that is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import log, prod, sqrt

from paceline.cost.calibration import Calibration, StepOverheads, overheads_key
from paceline.cost.curve import Trial
from paceline.cost.iteration import Iteration, compose_iteration, update_alone_s
from paceline.cost.model import model_for
from paceline.cost.network_trials import network_trials
from paceline.cost.step_overheads import ReferenceRun, fit_overheads
from paceline.cost.workload_tracing import chain_operations, data_shape_of, is_chain, trace_workload
from paceline.measurement.network_times import NetworkTimes

MAX_LOG_ERROR = 0.5
"""A network that is off by more than this counts as this much."""


def with_references(calibration: Calibration, measured: Sequence[NetworkTimes]) -> Calibration:
    """The calibration with step overheads fitted to measured networks and, on a GPU, with trials from their layers."""
    on_gpu = calibration.device == "cuda"
    runs = _by_key(calibration, measured)
    overheads = {key: overheads_with_error(each, on_gpu) for key, each in runs.items()}
    if on_gpu:
        captured = [run for key, each in runs.items() if key.startswith("graph") for run in each]
        calibration = _with_trials(calibration, network_trials(captured))
        again = {key: fit_overheads(each, on_gpu) for key, each in _by_key(calibration, measured).items()}
        # A network's own layers are among the trials now: how far off an unknown one is was found before.
        overheads = {
            key: replace(
                each,
                iteration_log_sd=overheads[key].iteration_log_sd,
                spreads=each.spreads | overheads[key].spreads,
            )
            for key, each in again.items()
        }
    return replace(calibration, step_overheads=overheads)


def _by_key(calibration: Calibration, measured: Sequence[NetworkTimes]) -> dict[str, list[ReferenceRun]]:
    runs: dict[str, list[ReferenceRun]] = defaultdict(list)
    for times in measured:
        key, run = reference_run(calibration, times)
        runs[key].append(run)
    return runs


def _with_trials(calibration: Calibration, found: Mapping[str, Sequence[Trial]]) -> Calibration:
    """Those of a network go first: a curve takes a limited number."""
    return replace(
        calibration,
        sets=tuple(
            replace(each, trials=(*found.get(each.precision, ()), *each.trials))
            if each.memory_format == "contiguous"
            else each
            for each in calibration.sets
        ),
    )


def overheads_with_error(runs: Sequence[ReferenceRun], on_gpu: bool) -> StepOverheads:
    """Step overheads, and how far off the iteration of each network is when it is left out of the fit."""
    missed = []
    for name in {run.times.name for run in runs}:
        others = [run for run in runs if run.times.name != name]
        if others:
            known = fit_overheads(others, on_gpu)
            missed += [
                log(composed(run, known, on_gpu).seconds / run.times.iteration_s)
                for run in runs
                if run.times.name == name
            ]
    error = sqrt(sum(min(value * value, MAX_LOG_ERROR**2) for value in missed) / len(missed)) if missed else 0.0
    return replace(fit_overheads(runs, on_gpu), iteration_log_sd=error)


def composed(run: ReferenceRun, overheads: StepOverheads, on_gpu: bool) -> Iteration:
    """The iteration of a measured network as it would be predicted."""
    return compose_iteration(
        run.model, overheads, run.shape, run.costed, step="chain" if run.chain and not on_gpu else run.times.step,
        update_s=run.update_s, sample_elements=run.times.batch * prod(run.data.shape), on_gpu=on_gpu,
        drift=run.times.drift,
    )  # fmt: skip


def reference_run(calibration: Calibration, times: NetworkTimes) -> tuple[str, ReferenceRun]:
    """The key of the step overheads that a measured network informs, and the network with its operations' times."""
    workload = times.workload
    data = data_shape_of(workload)
    on_gpu = calibration.device == "cuda"
    shape = trace_workload(workload, data, on_gpu=on_gpu)
    chain = times.step in ("flat", "graph") and is_chain(shape, workload)
    operations = chain_operations(shape.operations, on_gpu) if chain else list(shape.operations)
    model = model_for(calibration, workload, shape)
    run = ReferenceRun(
        times, model.cost(operations), update_alone_s(model, shape, workload, times.step, on_gpu), model, shape, data,
        chain,
    )  # fmt: skip
    return overheads_key(times.step, chain, times.precision), run
