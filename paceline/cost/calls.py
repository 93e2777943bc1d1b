"""How often each layer of a step on a CPU is called: forward by Python, backward by autograd."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from paceline.cost.caches import Costed, displaced, written_bytes
from paceline.cost.op_tracing import NetworkShape
from paceline.measurement.mark_log import OUTSIDE

Calls = dict[tuple[str, str], int]
"""By row and direction."""


def displaced_between_calls(calls: Calls, costed: Sequence[Costed], cache_bytes: float) -> float:
    """The share of the code for calling layers that leaves the caches between two calls."""
    return displaced(written_bytes(costed) / max(1, sum(calls.values())), cache_bytes)


def calls_of(shape: NetworkShape, costed: Sequence[Costed]) -> Calls:
    """Modules are called, and nodes of the backward pass; what is recomputed counts by its operations.

    The whole network comes first.
    """
    found: Calls = {}
    for name, row in shape.rows.items():
        found[name, "forward"], found[name, "backward"] = row.calls, row.backward_nodes
    counted = Counter((each.operation.row, each.operation.direction) for each in costed)
    known = {*shape.rows, OUTSIDE}
    return {**found, **{place: count for place, count in counted.items() if place[0] not in known}}
