"""Learns from measured networks what a step adds to its operations: the habits of a device and a step kind.

An operation timed alone finds its data in the caches and is called in a tight loop. In a network other operations
passed in between, modules are called, a backward pass is recorded. Each network that was measured tells how much
that is, layer by layer; one network counts once however many layers it has, and few of them count less.
"""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import exp, log, prod, sqrt
from statistics import median

import numpy as np
from scipy.optimize import nnls  # type: ignore[import-untyped]

from paceline.cost.calibration import Habits
from paceline.cost.model import Costed
from paceline.cost.reading_workload import data_shape_of
from paceline.measurement.mark_log import SCORE
from paceline.measurement.measurement import Measurement
from paceline.workload import Workload

SMALL_S = 30e-6
"""Layers predicted to take less tell what calling one costs."""
MOSTLY = 0.7
"""A layer tells about a family if this much of its time is that family's."""
LEAST_SPREAD = 0.05
MOST_FACTOR = 2.0
"""Beyond this it is no habit: something else was timed, and the spread tells."""
RARELY_SEEN = 0.3
ENOUGH = 3
"""In fewer networks than this a family counts as rarely seen, and is trusted less."""


@dataclass(frozen=True)
class Seen:
    """A network that was measured, and what its operations would take alone."""

    measurement: Measurement
    costed: Sequence[Costed]
    update_s: float = 0.0
    """What updating the parameters would take alone."""


@dataclass(frozen=True)
class _Row:
    """One direction of one layer."""

    network: str
    direction: str
    measured_s: float
    alone_s: float
    operations: int
    family: str
    """Its largest."""
    share: float
    """Of the time alone, that family's."""
    weight: float
    """Of its network's iteration, how much it is, shared among as many measurements as there are of the network."""


def learn(seen: Sequence[Seen], on_gpu: bool) -> Habits:
    batches = Counter(each.measurement.name for each in seen)
    rows = [row for each in seen for row in _rows(each, batches[each.measurement.name])]
    extra = dict.fromkeys(("forward", "backward"), 0.0) if on_gpu else _extra_s(rows)
    factors, spreads = _factors(rows, extra)
    load_s, load_element_s = _load_s(seen)
    return Habits(
        factors, spreads, extra["forward"], extra["backward"],
        gap_s=_median(_idle(s) for s in seen) if on_gpu else 0.0,
        launch_s=_launch_s(seen) if on_gpu else 0.0,
        load_s=load_s,
        load_element_s=load_element_s,
        update_factor=_update_factor(seen),
        score_s=_median(_score(s.measurement) for s in seen),
        loop_s=_median(s.measurement.parts_s.get("other", 0.0) for s in seen),
        networks=tuple(sorted({f"{s.measurement.name} at {s.measurement.batch}" for s in seen})),
    )  # fmt: skip


def _median(values: Iterable[float]) -> float:
    found = list(values)
    return median(found) if found else 0.0


def _load_s(seen: Sequence[Seen]) -> tuple[float, float]:
    """What a batch costs and what each of its numbers does, as fit the loading of all networks best."""
    found = [(s.measurement.parts_s.get("load", 0.0), _sample_elements(s.measurement)) for s in seen]
    loads = np.array([(load, elements) for load, elements in found if load > 0 and elements])
    if not len(loads):
        return 0.0, 0.0
    columns = np.column_stack([np.ones(len(loads)), loads[:, 1]]) / loads[:, :1]
    (batch_s, element_s), _ = nnls(columns, np.ones(len(loads)))
    return float(batch_s), float(element_s)


def _sample_elements(measurement: Measurement) -> int:
    data = measurement.conditions.get("data")
    return measurement.batch * prod(_shape_of(data)) if data else 0


@functools.cache
def _shape_of(data: str) -> tuple[int, ...]:
    return data_shape_of(Workload(data=data)).shape


def _update_factor(seen: Sequence[Seen]) -> float:
    by_network: dict[str, list[float]] = defaultdict(list)
    for each in seen:
        took = each.measurement.parts_s.get("update", 0.0)
        if took > 0 and each.update_s > 0:
            by_network[each.measurement.name].append(log(took / each.update_s))
    found = [median(values) for values in by_network.values()]
    return exp(median(found) * _trust(len(found))) if found else 1.0


def _trust(networks: float) -> float:
    """One network may be an exception, so few of them tell less."""
    return (networks - 0.7) / (networks + 0.6)


def _score(measurement: Measurement) -> float:
    return sum(layer.forward_s.median_s for layer in measurement.layers if layer.name == SCORE)


def _idle(seen: Seen) -> float:
    return seen.measurement.parts_s.get("idle", 0.0) / max(1, len(seen.costed))


def _launch_s(seen: Sequence[Seen]) -> float:
    """From networks in which the device waited for the host most of the time."""
    bound = [s for s in seen if s.measurement.parts_s.get("idle", 0.0) > 0.3 * s.measurement.iteration_s.median_s]
    return _median(s.measurement.iteration_s.median_s / max(1, len(s.costed)) for s in bound)


def _rows(seen: Seen, measurements: int) -> list[_Row]:
    alone: dict[tuple[str, str], dict[str, float]] = defaultdict(lambda: defaultdict(float))
    counts: dict[tuple[str, str], int] = defaultdict(int)
    for costed in seen.costed:
        place = costed.operation.row, costed.operation.direction
        alone[place][costed.operation.family] += costed.seconds
        counts[place] += 1
    rows = []
    for layer in seen.measurement.layers:
        for direction, spread in (("forward", layer.forward_s), ("backward", layer.backward_s)):
            families = alone.get((layer.name, direction))
            if families and spread.median_s > 0:
                family, most = max(families.items(), key=lambda item: item[1])
                whole = sum(families.values())
                count, network = counts[layer.name, direction], seen.measurement.name
                weight = spread.median_s / seen.measurement.iteration_s.median_s / measurements
                rows.append(_Row(network, direction, spread.median_s, whole, count, family, most / whole, weight))
    return rows


def _extra_s(rows: Sequence[_Row]) -> dict[str, float]:
    """What an operation costs above its own time, from layers that do next to nothing."""
    extra = {}
    for direction in ("forward", "backward"):
        by_network: dict[str, list[float]] = defaultdict(list)
        for row in rows:
            if row.direction == direction and row.alone_s / row.operations < SMALL_S:
                by_network[row.network].append((row.measured_s - row.alone_s) / row.operations)
        extra[direction] = max(0.0, _median(median(found) for found in by_network.values()))
    return extra


def _factors(rows: Sequence[_Row], extra: dict[str, float]) -> tuple[dict[str, float], dict[str, float]]:
    """A network tells about a family as much as it spends on it: one small layer says little of large products."""
    missed: dict[str, dict[str, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        own = row.measured_s - row.operations * extra[row.direction]
        if row.share >= MOSTLY and own > 0.3 * row.measured_s:
            missed[row.family][row.network].append((log(own / row.alone_s), row.weight))
    factors, spreads = {}, {}
    for family, networks in missed.items():
        found = [(_weighted_median(values), sum(weight for _, weight in values)) for values in networks.values()]
        told = _weighted_median(found) * _trust(_as_many_as([weight for _, weight in found]))
        factors[family] = exp(max(-log(MOST_FACTOR), min(log(MOST_FACTOR), told)))
        left = [(value - log(factors[family]), weight) for values in networks.values() for value, weight in values]
        least = LEAST_SPREAD if len(found) >= ENOUGH else RARELY_SEEN
        whole = sum(weight for _, weight in left)
        spreads[family] = max(least, sqrt(sum(min(value * value, 1.0) * weight for value, weight in left) / whole))
    return factors, spreads


def _weighted_median(values: Sequence[tuple[float, float]]) -> float:
    """Of (value, weight), interpolated: half of the weight is below."""
    ordered = sorted(values)
    weights = np.array([weight for _, weight in ordered])
    middles = (np.cumsum(weights) - weights / 2) / weights.sum()
    return float(np.interp(0.5, middles, [value for value, _ in ordered]))


def _as_many_as(weights: Sequence[float]) -> float:
    """How many equal ones tell as much as these."""
    return sum(weights) ** 2 / sum(weight * weight for weight in weights)
