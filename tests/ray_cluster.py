"""A Ray cluster of three nodes on this machine, small enough to share it with other tests."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

os.environ.setdefault("RAY_AUTH_MODE", "disabled")
os.environ.setdefault("RAY_DEDUP_LOGS", "0")
os.environ.setdefault("RAY_worker_niceness", "0")  # beside other tests, actors would hardly run with Ray's 15

NODES = 3
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


def settle(cluster: Any, nodes: int = NODES, within_s: float = 60.0) -> None:
    """Until the cluster has that many nodes, Ray lists these and no others as alive, and no actor is left on them.

    A node that was killed is listed as alive until Ray misses its heartbeats.
    """
    import ray

    while len(cluster.list_all_nodes()) < nodes:
        add_node(cluster)
    latest_s = time.monotonic() + within_s
    while time.monotonic() < latest_s:
        listed = [node for node in ray.nodes() if node["Alive"]]
        there = {node["NodeID"] for node in listed} == {node.node_id for node in cluster.list_all_nodes()}
        cpus = sum(node["Resources"].get("CPU", 0.0) for node in listed)
        if there and ray.available_resources().get("CPU", 0.0) == cpus:
            return
        time.sleep(0.1)
    raise TimeoutError(f"the cluster did not have {nodes} idle nodes within {within_s:g} s")


def add_node(cluster: Any) -> None:
    """Also from a thread, where nodes cannot ask to be stopped when the process exits; the fixture stops them."""
    cluster._shutdown_at_exit = threading.current_thread() is threading.main_thread()
    cluster.add_node(**NODE)


@pytest.fixture(scope="session")
def shared_ray_cluster() -> Iterator[Any]:
    cluster = start_cluster(NODES)
    yield cluster
    stop_cluster(cluster)


@pytest.fixture
def ray_cluster(shared_ray_cluster: Any) -> Any:
    """Shared by all tests of a session; each finds as many idle nodes as the first, whatever the one before removed."""
    settle(shared_ray_cluster)
    return shared_ray_cluster
