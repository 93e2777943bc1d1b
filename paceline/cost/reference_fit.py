"""Fits what a step adds to its operations to measured reference networks, and finds how far off that is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import log, prod, sqrt
from statistics import median

from paceline.cost.calibration import Calibration, StepOverheads
from paceline.cost.iteration import Iteration, compose_iteration
from paceline.cost.network_trials import network_trials
from paceline.cost.reference_run import ReferenceRun, reference_run
from paceline.cost.step_overheads import fit_overheads
from paceline.measurement.network_times import NetworkTimes

MAX_DEVIATIONS = 2.0


def with_references(calibration: Calibration, measured: Sequence[NetworkTimes]) -> Calibration:
    """The calibration with step overheads fitted to measured networks and, on a GPU, with trials from their layers,
    in place of those it had."""
    on_gpu = calibration.device == "cuda"
    calibration = _with_trials(replace(calibration, references=tuple(measured)), [])
    runs = _by_key(calibration, measured)
    if on_gpu:
        captured = [run for key, each in runs.items() if key.startswith("graph") for run in each]
        # Each network is costed from the layers of the others, as one that nobody measured is.
        runs = defaultdict(list)
        for name in dict.fromkeys(times.name for times in measured):
            others = _with_trials(calibration, [run for run in captured if run.times.name != name])
            for key, own in _by_key(others, [times for times in measured if times.name == name]).items():
                runs[key] += own
        calibration = _with_trials(calibration, captured)
    overheads = {key: overheads_with_error(each, on_gpu, _same_step(each, runs)) for key, each in runs.items()}
    return replace(calibration, step_overheads=overheads)


def _by_key(calibration: Calibration, measured: Sequence[NetworkTimes]) -> dict[str, list[ReferenceRun]]:
    runs: dict[str, list[ReferenceRun]] = defaultdict(list)
    for times in measured:
        key, run = reference_run(calibration, times)
        runs[key].append(run)
    return runs


def _same_step(own: Sequence[ReferenceRun], runs: Mapping[str, Sequence[ReferenceRun]]) -> list[ReferenceRun]:
    return [run for each in runs.values() for run in each if run.times.step == own[0].times.step]


def _with_trials(calibration: Calibration, captured: Sequence[ReferenceRun]) -> Calibration:
    """With the layers of these networks as further trials."""
    found = network_trials(captured)
    sets = (
        replace(each, from_networks=tuple(found.get(each.precision, ())))
        if each.memory_format == "contiguous"
        else each
        for each in calibration.sets
    )
    return replace(calibration, sets=tuple(sets))


def overheads_with_error(
    runs: Sequence[ReferenceRun], on_gpu: bool, same_step: Sequence[ReferenceRun] = ()
) -> StepOverheads:
    """Step overheads, and how far off the iteration of each network is when it is left out of the fit."""
    missed = []
    for name in {run.times.name for run in runs}:
        others = [run for run in runs if run.times.name != name]
        if others:
            known = fit_overheads(others, on_gpu, [run for run in same_step if run.times.name != name])
            missed += [
                log(composed(run, known, on_gpu).seconds / run.times.iteration_s)
                for run in runs
                if run.times.name == name
            ]
    return replace(fit_overheads(runs, on_gpu, same_step), iteration_log_sd=_deviation(missed))


def _deviation(missed: Sequence[float]) -> float:
    """A standard deviation around zero in which an exception counts no more than `MAX_DEVIATIONS` of the usual one."""
    if not missed:
        return 0.0
    usual = 1.4826 * median(abs(value) for value in missed)
    return sqrt(sum(min(abs(value), MAX_DEVIATIONS * usual) ** 2 for value in missed) / len(missed))


def composed(run: ReferenceRun, overheads: StepOverheads, on_gpu: bool) -> Iteration:
    """The iteration of a measured network as it would be predicted."""
    return compose_iteration(
        run.model, overheads, run.shape, run.costed, step="chain" if run.chain and not on_gpu else run.times.step,
        update_s=run.update_s, sample_elements=run.times.batch * prod(run.data.shape), on_gpu=on_gpu,
        drift=run.times.drift,
    )  # fmt: skip
