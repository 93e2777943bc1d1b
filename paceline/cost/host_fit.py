"""Fits the times that a step on a GPU takes besides its kernels, to measured networks: the host's, and gaps.

Neither depends on the precision of the numbers, so all runs of one kind of step count. The host of a shared machine is
slow for seconds at a time: the middle one of a network's runs counts, and the fit minimises absolute errors, so that a
few slow ones move it little.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from paceline.cost.least_deviations import least_deviations
from paceline.cost.reference_run import ReferenceRun

MIN_LOG_SD = 0.05
FEW_LOG_SD = 0.3
MIN_NETWORKS = 6
"""With fewer networks one factor is fitted to all that the host does."""
HOST_BOUND = 1.3
"""An iteration that takes this many times as long as its kernels waited for the host."""
AHEAD = 0.8
"""The host is ahead of the device if launching an iteration takes less than this share of running it."""


@dataclass(frozen=True)
class LaunchTimes:
    """Host times of a step that is not captured."""

    factor: float = 0.0
    """Launching an operation in a network, divided by calling it alone."""
    view_s: float = 0.0
    parameter_s: float = 0.0
    iteration_s: float = 0.0
    log_sd: float = 0.0


def fit_host_times(seen: Sequence[ReferenceRun]) -> LaunchTimes:
    """What launching costs in a network, compared with calling the operations alone, none below zero."""
    networks: dict[tuple[str, str], list[ReferenceRun]] = defaultdict(list)
    for run in seen:
        if run.times.host_s > 0:
            networks[run.times.name, run.times.precision].append(run)
    if not networks:
        return LaunchTimes()
    took = np.array([median(s for run in runs for s in launching_s(run)) for runs in networks.values()])
    columns = np.array([_host_columns(runs[0]) for runs in networks.values()])
    if len({name for name, _ in networks}) < MIN_NETWORKS:
        return LaunchTimes(float(np.median(took / np.maximum(columns[:, 0], 1e-9))), log_sd=FEW_LOG_SD)
    found = least_deviations(columns, took)
    missed = np.log(np.maximum(columns @ found, 1e-9) / took)
    factor, view_s, parameter_s, iteration_s = map(float, found)
    return LaunchTimes(factor, view_s, parameter_s, iteration_s, max(MIN_LOG_SD, float(np.sqrt(np.mean(missed**2)))))


def _host_columns(run: ReferenceRun) -> tuple[float, float, float, float]:
    called_s = sum(run.model.host_s(each.operation) for each in run.costed)
    return called_s, run.shape.views, run.shape.parameter_tensors, 1.0


def launching_s(run: ReferenceRun) -> list[float]:
    """Times of the host to launch an iteration; the iteration is one, where the device waited for the host."""
    times = run.times
    return [times.host_s, times.iteration_s] if times.iteration_s > HOST_BOUND * run.busy_s else [times.host_s]


def fit_gaps_s(seen: Sequence[ReferenceRun]) -> tuple[float, float]:
    """The gap between two operations and the rest of the loop, from iterations in which the host is ahead."""
    ahead = [s for s in seen if s.times.host_s < AHEAD * s.busy_s]
    if not ahead:
        return 0.0, 0.0
    idle = np.array([max(1e-7, s.times.iteration_s - s.busy_s) for s in ahead])
    gap_s, loop_s = least_deviations(np.array([(len(s.costed), 1.0) for s in ahead]), idle)
    return float(gap_s), float(loop_s)
