"""Fits what a step adds to its operations to measured reference networks, and finds how far off that is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import log, prod
from statistics import fmean

import numpy as np

from paceline.cost.calibration import Calibration, StepOverheads
from paceline.cost.iteration import Iteration, compose_iteration
from paceline.cost.network_trials import network_trials
from paceline.cost.reference_run import ReferenceRun, reference_run
from paceline.cost.step_overheads import fit_overheads
from paceline.measurement.network_times import NetworkTimes

USUAL_CACHE, FURTHER = 2.0**20, 0.06
"""How much is written when half has left the caches, on common CPUs. Another size, from a sixteenth of it to sixteen
times, must be better by this share for each factor of two."""
WITHIN_ONE_SD = 0.6827
"""Share of normally distributed errors within one standard deviation; a few exceptions do not move this quantile."""


def with_references(calibration: Calibration, measured: Sequence[NetworkTimes]) -> Calibration:
    """The calibration with step overheads fitted to measured networks and, on a GPU, with trials from their layers,
    in place of those it had."""
    calibration, runs = costed_references(calibration, measured)
    on_gpu = calibration.device == "cuda"
    overheads = {key: overheads_with_error(each, on_gpu, same_step(each, runs)) for key, each in runs.items()}
    return replace(calibration, step_overheads=overheads)


def _fitted_cache(calibration: Calibration, runs: Mapping[str, Sequence[ReferenceRun]]) -> float:
    """The `cache_bytes` with which networks that are left out of the fit are predicted best."""
    if not any(trial.cached_s for each in calibration.sets for trial in each.trials):
        return 0.0

    def missed(cache_bytes: float) -> float:
        tried = {key: [replace(run, cache_bytes=cache_bytes) for run in each] for key, each in runs.items()}
        cases = [case for each in tried.values() for case in left_out(each, False, same_step(each, tried))]
        return fmean(_layers_missed(*case) for case in cases) if cases else 0.0

    errors = {power: missed(USUAL_CACHE * 2.0**power) * (1 + FURTHER * abs(power)) for power in range(-4, 5)}
    return USUAL_CACHE * 2.0 ** min(errors, key=errors.__getitem__)


def _layers_missed(run: ReferenceRun, made: Iteration) -> float:
    """The errors of all layers, as a share of the iteration."""
    predicted = {layer.name: layer.forward_s + layer.backward_s for layer in made.layers}
    errors = [abs(predicted.get(layer, 0.0) - sum(both)) for layer, both in run.times.layers.items()]
    return sum(errors) / run.times.iteration_s


def costed_references(
    calibration: Calibration, measured: Sequence[NetworkTimes]
) -> tuple[Calibration, dict[str, list[ReferenceRun]]]:
    """The calibration with trials from the measured networks, on a GPU, and these networks by key of their overheads.

    Each network is costed from the layers of the others, as one that nobody measured is.
    """
    calibration = _with_trials(replace(calibration, references=tuple(measured)), [])
    runs = _by_key(calibration, measured)
    if calibration.device != "cuda":
        cache_bytes = _fitted_cache(calibration, runs)
        fitted = {key: [replace(run, cache_bytes=cache_bytes) for run in each] for key, each in runs.items()}
        return replace(calibration, cache_bytes=cache_bytes), fitted
    captured = [run for key, each in runs.items() if key.startswith("graph") for run in each]
    runs = defaultdict(list)
    for name in dict.fromkeys(times.name for times in measured):
        others = _with_trials(calibration, [run for run in captured if run.times.name != name])
        for key, own in _by_key(others, [times for times in measured if times.name == name]).items():
            runs[key] += own
    return _with_trials(calibration, captured), runs


def _by_key(calibration: Calibration, measured: Sequence[NetworkTimes]) -> dict[str, list[ReferenceRun]]:
    runs: dict[str, list[ReferenceRun]] = defaultdict(list)
    for times in measured:
        key, run = reference_run(calibration, times)
        runs[key].append(run)
    return runs


def same_step(own: Sequence[ReferenceRun], runs: Mapping[str, Sequence[ReferenceRun]]) -> list[ReferenceRun]:
    """Runs of the same kind of step in any precision."""
    return [run for each in runs.values() for run in each if run.times.step == own[0].times.step]


def _with_trials(calibration: Calibration, captured: Sequence[ReferenceRun]) -> Calibration:
    """With the layers of these networks as further trials."""
    found = network_trials(captured)
    sets = (
        replace(each, from_networks=tuple(found.get((each.precision, each.memory_format), ())))
        for each in calibration.sets
    )
    return replace(calibration, sets=tuple(sets))


def overheads_with_error(
    runs: Sequence[ReferenceRun], on_gpu: bool, same_step: Sequence[ReferenceRun] = ()
) -> StepOverheads:
    """Step overheads, and how far off the iteration of each network is when it is left out of the fit."""
    errors = [abs(log(made.seconds / run.times.iteration_s)) for run, made in left_out(runs, on_gpu, same_step)]
    sd = float(np.quantile(errors, WITHIN_ONE_SD)) if errors else 0.0
    return replace(fit_overheads(runs, on_gpu, same_step), iteration_log_sd=sd)


def left_out(
    runs: Sequence[ReferenceRun], on_gpu: bool, same_step: Sequence[ReferenceRun] = (), *, with_error: bool = False
) -> Iterator[tuple[ReferenceRun, Iteration]]:
    """Each run with its predicted iteration, from overheads that were fitted to the other networks.

    `with_error`: the interval is fitted to the other networks, too, as for a network that nobody measured.
    """
    fit = overheads_with_error if with_error else fit_overheads
    for name in dict.fromkeys(run.times.name for run in runs):
        others = [run for run in runs if run.times.name != name]
        if others:
            known = fit(others, on_gpu, [run for run in same_step if run.times.name != name])
            yield from ((run, composed(run, known, on_gpu)) for run in runs if run.times.name == name)


def composed(run: ReferenceRun, overheads: StepOverheads, on_gpu: bool) -> Iteration:
    """The iteration of a measured network as it would be predicted."""
    return compose_iteration(
        run.model, overheads, run.shape, run.costed, step="chain" if run.chain and not on_gpu else run.times.step,
        update_s=run.update_s, sample_elements=run.times.batch * prod(run.data.shape), on_gpu=on_gpu,
        drift=run.times.drift,
    )  # fmt: skip
