"""Chooses the nodes of a run's actors; where it does not, Ray spreads them.

The server prefers a node without room for workers, so that no worker shares its link. The members of a group are placed
side by side, so that they average on one node instead of over the network. Both are preferences: when a node is gone,
Ray starts its actors elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paceline.training.drivers.ray.connection import Shares, places_on

SPREAD = "SPREAD"
SOME_MEMORY = 1
"""Bytes that an actor without CPUs requests: Ray ignores the preference of an actor that requests nothing."""


def node_of_server(ray: Any, shares: Shares) -> Any:
    """The scheduling strategy of the server."""
    alive = [node for node in ray.nodes() if node["Alive"]]
    free = [node["NodeID"] for node in alive if not places_on(node["Resources"], shares)]
    return _prefer(free[0]) if free and len(free) < len(alive) else SPREAD


def nodes_of_shards(ray: Any, shards: int, copies: int) -> list[list[Any]]:
    """The scheduling strategy of each shard and of its replica: one node after another, a replica on the next one."""
    alive = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
    return [[_prefer(alive[(shard + copy) % len(alive)]) for copy in range(copies)] for shard in range(shards)]


def nodes_of_workers(ray: Any, shares: Shares, workers: int, groups: int) -> list[Any]:
    """The scheduling strategy of each worker.

    Ray decides for itself where there are no groups to keep together, and where others use the cluster, too.
    """
    whole, free = ray.cluster_resources(), ray.available_resources()
    is_shared = any(free.get(kind, 0.0) < whole.get(kind, 0.0) for kind in ("CPU", "GPU"))
    if groups == workers or is_shared:
        return [SPREAD] * workers
    rooms = {node["NodeID"]: places_on(node["Resources"], shares) for node in ray.nodes() if node["Alive"]}
    chosen = side_by_side(list(rooms.values()), workers)
    names = list(rooms)
    return [_prefer(names[place]) for place in chosen]


def side_by_side(rooms: Sequence[int], workers: int) -> list[int]:
    """The node of each worker: as even as the nodes' rooms allow, neighbours together."""
    counts = [0] * len(rooms)
    for _ in range(workers):
        open_ = [place for place, room in enumerate(rooms) if counts[place] < room]
        counts[min(open_, key=lambda place: counts[place])] += 1
    return [place for place, count in enumerate(counts) for _ in range(count)]


def _prefer(node: str) -> Any:
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(node, soft=True)
