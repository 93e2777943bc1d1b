"""Fits what a step adds to the times of its operations, for one device and step kind, to measured networks.

An operation timed alone finds its data in the caches and is called in a tight loop. In a network other operations run
in between, modules are called and a backward pass is recorded. Each measured network shows how much that costs, layer
by layer. Each network has the same weight however many layers it has, and with few networks the estimates are shrunk.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import exp, log, prod, sqrt
from statistics import median

import numpy as np
from scipy.optimize import nnls  # type: ignore[import-untyped]

from paceline.cost.caches import slowed_without_code
from paceline.cost.calibration import StepOverheads
from paceline.cost.calls import calls_of, displaced_between_calls
from paceline.cost.host_fit import LaunchTimes, fit_gaps_s, fit_host_times
from paceline.cost.least_deviations import least_deviations
from paceline.cost.reference_run import ReferenceRun
from paceline.cost.timing import probe_of
from paceline.measurement.mark_log import OUTSIDE

SMALL_S = 30e-6
"""Layers predicted to take less than this show the cost of a call."""
MIN_FAMILY_SHARE = 0.7
"""A layer informs about a family if at least this share of its time is that family's."""
MIN_SPREAD = 0.05
MAX_FACTOR = 2.0
"""Factors are limited to this range; beyond it something else was timed, which widens the spread."""
LEAST_CALL_SPREAD = 0.2
MEDIAN_TO_SD = 1.4826
"""From the median of absolute deviations to the standard deviation, for a normal distribution."""
RARE_SPREAD = 0.3
MIN_NETWORKS = 3
"""A family in fewer networks than this has at least `RARE_SPREAD`."""


@dataclass(frozen=True)
class _Row:
    """One direction of one layer."""

    network: str
    layer: str
    direction: str
    measured_s: float
    alone_s: float
    calls: int
    slowed: float
    """How many times as long a call takes because the caches have lost its code since the one before."""
    family: str
    """The family that takes the most time."""
    share: float
    """That family's share of `alone_s`."""
    weight: float
    """Share of the network's iteration, divided by the number of measurements of that network."""


def fit_overheads(seen: Sequence[ReferenceRun], on_gpu: bool, same_step: Sequence[ReferenceRun] = ()) -> StepOverheads:
    """`same_step`: runs of the same kind of step in any precision, which tell about what is the same for all."""
    alike = same_step or seen
    batches = Counter(each.times.name for each in seen)
    rows = [row for each in seen for row in _rows(each, batches[each.times.name])]
    called = {direction: 0.0 if on_gpu else _called_s(rows, direction) for direction in ("forward", "backward")}
    factors, spreads = _factors(rows, called)
    around = dict.fromkeys(("network", "loss", "backward"), 0.0) if on_gpu else _around_s(seen)
    load_s, load_element_s = _load_s(alike)
    host, gap_s = LaunchTimes(), 0.0
    loop_s = _median(s.times.parts_s.get("loop", 0.0) / s.slowed for s in seen)
    score_s = _median(s.times.score_s / s.slowed for s in seen)
    if on_gpu:
        host = fit_host_times(alike)
        gap_s, loop_s = fit_gaps_s(alike)
    update_s, update_tensor_s, update_factor = _update(alike, on_gpu)
    return StepOverheads(
        factors, spreads, called["forward"], called["backward"],
        network_s=around["network"],
        loss_s=around["loss"],
        loss_backward_s=around["backward"],
        call_spread=0.0 if on_gpu else _call_spread(rows, called),
        gap_s=gap_s,
        host_factor=host.factor,
        host_view_s=host.view_s,
        host_parameter_s=host.parameter_s,
        host_s=host.iteration_s,
        host_log_sd=host.log_sd,
        load_s=load_s,
        load_element_s=load_element_s,
        update_s=update_s,
        update_tensor_s=update_tensor_s,
        update_factor=update_factor,
        score_s=score_s,
        loop_s=loop_s,
        networks=tuple(sorted({f"{s.times.name} at {s.times.batch}" for s in seen})),
    )  # fmt: skip


def _median(values: Iterable[float]) -> float:
    found = list(values)
    return median(found) if found else 0.0


def _called_s(rows: Sequence[_Row], direction: str) -> float:
    """The overhead per call, from layers that do almost nothing."""
    by_network: dict[str, list[float]] = defaultdict(list)
    for row, seconds in _calls_of_small(rows, direction):
        by_network[row.network].append(seconds)
    return max(0.0, _median(median(found) for found in by_network.values()))


def _calls_of_small(rows: Sequence[_Row], direction: str) -> Iterator[tuple[_Row, float]]:
    """Layers that do almost nothing, and what a call of them takes besides."""
    for row in rows:
        if row.direction == direction and row.layer != OUTSIDE and row.alone_s / row.calls < SMALL_S:
            yield row, (row.measured_s - row.alone_s) / row.calls / row.slowed


def _call_spread(rows: Sequence[_Row], called: dict[str, float]) -> float:
    """The standard deviation between layers, divided by the overhead per call; a few exceptions do not count."""
    found = [
        abs(seconds / usual_s - 1.0)
        for direction, usual_s in called.items()
        if usual_s
        for _, seconds in _calls_of_small(rows, direction)
    ]
    return min(1.0, max(LEAST_CALL_SPREAD, MEDIAN_TO_SD * median(found))) if found else LEAST_CALL_SPREAD


def _around_s(seen: Sequence[ReferenceRun]) -> dict[str, float]:
    """What calling the whole network, its loss and its backward pass takes besides their operations."""
    found: dict[str, list[float]] = defaultdict(list)
    for run in seen:
        alone: dict[tuple[str, str], float] = defaultdict(float)
        for costed in run.costed:
            alone[costed.operation.row, costed.operation.direction] += costed.seconds
        whole = next(iter(run.shape.rows), "")
        for name, layer, direction in (("network", whole, 0), ("loss", OUTSIDE, 0), ("backward", OUTSIDE, 1)):
            took_s = run.times.layers.get(layer, (0.0, 0.0))[direction]
            found[name].append(max(0.0, took_s - alone[layer, ("forward", "backward")[direction]]) / run.slowed)
    return {name: _median(found[name]) for name in ("network", "loss", "backward")}


def _load_s(seen: Sequence[ReferenceRun]) -> tuple[float, float]:
    """Loading time per batch and per element, fitted to all networks."""
    found = [(s.times.parts_s.get("load", 0.0), s.times.batch * prod(s.data.shape)) for s in seen]
    loads = np.array([(load, elements) for load, elements in found if load > 0 and elements])
    if not len(loads):
        return 0.0, 0.0
    columns = np.column_stack([np.ones(len(loads)), loads[:, 1]]) / loads[:, :1]
    (batch_s, element_s), _ = nnls(columns, np.ones(len(loads)))
    return float(batch_s), float(element_s)


def _update(seen: Sequence[ReferenceRun], on_gpu: bool) -> tuple[float, float, float]:
    """Times of an update: to start its kernels, per parameter tensor, and as a multiple of its passes over memory.

    A hand-written gradient is written where the update reads it, so its tensors take no time.
    """
    runs = [each for each in seen if each.times.parts_s.get("update", 0.0) > 0 and each.update_s > 0]
    if len({each.times.name for each in runs}) < MIN_NETWORKS:
        return 0.0, 0.0, 1.0
    columns = [(1.0, 0 if each.chain else each.shape.parameter_tensors, each.update_s) for each in runs]
    found = least_deviations(np.array(columns), np.array([each.times.parts_s["update"] for each in runs]))
    start_s, tensor_s, factor = map(float, found)
    return start_s, tensor_s, factor


def _shrinkage(networks: float) -> float:
    """Shrinks estimates from few networks: a single one may be an exception."""
    return (networks - 0.7) / (networks + 0.6)


def _rows(seen: ReferenceRun, measurements: int) -> list[_Row]:
    alone: dict[tuple[str, str], dict[str, float]] = defaultdict(lambda: defaultdict(float))
    calls = calls_of(seen.shape, seen.costed)
    slowed = slowed_without_code(displaced_between_calls(calls, seen.costed, seen.cache_bytes), seen.cache_bytes)
    for costed in seen.costed:
        place, family = (costed.operation.row, costed.operation.direction), costed.operation.family
        alone[place][family] += costed.seconds * seen.times.drift.get(probe_of(family), 1.0)
    rows = []
    for layer, both in seen.times.layers.items():
        for direction, took in zip(("forward", "backward"), both, strict=True):
            families = alone.get((layer, direction))
            if families and took > 0:
                family, most = max(families.items(), key=lambda item: item[1])
                whole = sum(families.values())
                weight = took / seen.times.iteration_s / measurements
                count = max(1, calls.get((layer, direction), 1))
                share = most / whole
                rows.append(_Row(seen.times.name, layer, direction, took, whole, count, slowed, family, share, weight))
    return rows


def _factors(rows: Sequence[_Row], called: dict[str, float]) -> tuple[dict[str, float], dict[str, float]]:
    """Weights a network by the time it spends on a family: one small layer says little about large products."""
    missed: dict[str, dict[str, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        own = row.measured_s - row.calls * row.slowed * called[row.direction]
        if row.share >= MIN_FAMILY_SHARE and own > 0.3 * row.measured_s:
            missed[row.family][row.network].append((log(own / row.alone_s), row.weight))
    factors, spreads = {}, {}
    for family, networks in missed.items():
        found = [(_weighted_median(values), sum(weight for _, weight in values)) for values in networks.values()]
        log_factor = _weighted_median(found) * _shrinkage(_effective_count([weight for _, weight in found]))
        factors[family] = exp(max(-log(MAX_FACTOR), min(log(MAX_FACTOR), log_factor)))
        left = [(value - log(factors[family]), weight) for values in networks.values() for value, weight in values]
        least = MIN_SPREAD if len(found) >= MIN_NETWORKS else RARE_SPREAD
        whole = sum(weight for _, weight in left)
        spreads[family] = max(least, sqrt(sum(min(value * value, 1.0) * weight for value, weight in left) / whole))
    return factors, spreads


def _weighted_median(values: Sequence[tuple[float, float]]) -> float:
    """The interpolated median of (value, weight) pairs."""
    ordered = sorted(values)
    weights = np.array([weight for _, weight in ordered])
    middles = (np.cumsum(weights) - weights / 2) / weights.sum()
    return float(np.interp(0.5, middles, [value for value, _ in ordered]))


def _effective_count(weights: Sequence[float]) -> float:
    """The effective sample size of the weights."""
    return sum(weights) ** 2 / sum(weight * weight for weight in weights)
