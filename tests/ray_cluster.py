"""A Ray cluster of three nodes on this machine, small enough to share it with other tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

os.environ.setdefault("RAY_AUTH_MODE", "disabled")
os.environ.setdefault("RAY_DEDUP_LOGS", "0")

STORE_BYTES = 100 << 20
NODE = {"num_cpus": 2, "object_store_memory": STORE_BYTES, "include_dashboard": False}


def start_cluster(nodes: int) -> Any:
    """The cluster, with this process connected to its first node."""
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'paceline[ray]'")
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args=NODE)
    for _ in range(nodes - 1):
        cluster.add_node(**NODE)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR", configure_logging=False)
    return cluster


def stop_cluster(cluster: Any) -> None:
    import ray

    ray.shutdown()
    cluster.shutdown()


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[Any]:
    """Shared by all tests of a session: one that removes a node adds another."""
    cluster = start_cluster(3)
    yield cluster
    stop_cluster(cluster)
