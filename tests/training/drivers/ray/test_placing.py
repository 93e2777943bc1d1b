"""The server has a node of its own where one has no room for workers, and members of a group are side by side."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from paceline.training.drivers.ray.connection import Shares
from paceline.training.drivers.ray.placing import SPREAD, node_of_server, nodes_of_workers, side_by_side

pytest.importorskip("ray", reason="Ray is not installed: pip install 'paceline[ray]'")
SHARES = Shares(1.0, 0.0)


def node(number):
    """An id as long as Ray's."""
    return f"{number:056x}"


def cluster(*cpus, used=0.0, alive=None):
    nodes = [
        {"NodeID": node(number), "Alive": alive is None or alive[number], "Resources": {"CPU": float(count)}}
        for number, count in enumerate(cpus)
    ]
    whole = float(sum(cpus))
    return SimpleNamespace(
        nodes=lambda: nodes, cluster_resources=lambda: {"CPU": whole}, available_resources=lambda: {"CPU": whole - used}
    )


@pytest.mark.parametrize(
    ("rooms", "workers", "expected"),
    [
        ([2, 2], 4, [0, 0, 1, 1]),
        ([0, 2, 2], 4, [1, 1, 2, 2]),
        ([1, 4], 4, [0, 1, 1, 1]),
        ([4, 4, 4], 4, [0, 0, 1, 2]),
    ],
)
def test_neighbours_are_together_and_nodes_evenly_used(rooms, workers, expected):
    assert side_by_side(rooms, workers) == expected


def test_the_server_prefers_the_node_without_room_for_workers():
    assert node_of_server(cluster(2, 0, 2), SHARES).node_id == node(1)
    assert node_of_server(cluster(2, 0, 2), SHARES).soft  # when the node is gone, it starts elsewhere


def test_ray_places_the_server_where_all_nodes_are_alike_or_the_other_one_is_dead():
    assert node_of_server(cluster(2, 2), SHARES) == SPREAD
    assert node_of_server(cluster(2, 0, alive=[True, False]), SHARES) == SPREAD


def test_members_of_a_group_share_a_node():
    found = nodes_of_workers(cluster(0, 2, 2), SHARES, 4, groups=2)
    assert [each.node_id for each in found] == [node(1), node(1), node(2), node(2)]
    assert all(each.soft for each in found)


@pytest.mark.parametrize(("groups", "used"), [(4, 0.0), (2, 1.0)])
def test_ray_spreads_workers_without_groups_and_on_a_cluster_that_others_use(groups, used):
    assert nodes_of_workers(cluster(2, 2, used=used), SHARES, 4, groups=groups) == [SPREAD] * 4
