"""Measures the network between nodes as the driver uses it: a worker fetches parameters and pushes payloads."""

from __future__ import annotations

import math
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

import torch

from paceline.errors import InputError
from paceline.measurement.links import NODE_TO_NODE, LinkSpeed
from paceline.step.optimizers import Rule
from paceline.strategy.layout import Layout, PhaseLayout
from paceline.strategy.presets import find_strategy
from paceline.training.drivers.ray.job import Job
from paceline.training.drivers.ray.messages import Push, ServerActors, ServerState, WorkerReport
from paceline.training.drivers.ray.placing import SOME_MEMORY
from paceline.training.drivers.ray.server import Server
from paceline.training.drivers.ray.shard_handles import ShardHandles
from paceline.training.drivers.ray.sharding import Sharding
from paceline.training.settings import DriverSettings
from paceline.workload import resolve

SMALL_BYTES, LARGE_BYTES = 4 << 10, 64 << 20
FLOAT_BYTES = 4
SMALL_ROUNDS, LARGE_ROUNDS = 20, 5
MOST_PAIRS = 4
"""In a larger cluster, the links of the first nodes stand for all."""


class MoveTimes(NamedTuple):
    """Median seconds, without the server's updates; those of shards are included."""

    fetch_s: float
    """From asking for parameters until they are there."""
    exchange_s: float
    """From pushing a payload until the next parameters are there."""


class Mover:
    """A worker that only communicates."""

    def __init__(self, job: Job) -> None:
        self.job = job

    def times(self, servers: ServerActors, rounds: int) -> MoveTimes:
        from paceline.training.drivers.ray.server_link import ray
        from paceline.training.drivers.ray.shard_link import link_to

        torch.set_num_threads(1)
        link, server = link_to(servers, self.job, 0, 1), servers.server
        reply, _ = link.receive(link.send_join())
        link.joined(reply)
        while reply.task is None:
            reply, _ = link.receive(link.send(WorkerReport()))
        into = torch.zeros(self.job.layout.size)
        payload = torch.zeros(self.job.payload_size)
        fetched, exchanged = [], []
        for _ in range(rounds + 1):
            task = reply.task
            assert task is not None
            start_s = perf_counter()
            link.parameters.put_into(into, link.fetch(task.sequence, 0)[1])
            fetched.append(perf_counter() - start_s)
            updated_s = ray.get(server.status.remote(0.0, 0)).updating_s
            push = Push(task.sequence, 1, 1, size=len(payload))
            start_s = perf_counter()
            reply, pieces = link.receive(link.send(WorkerReport(), push, payload))
            link.parameters.put_into(into, pieces)
            took_s = perf_counter() - start_s
            exchanged.append(took_s - (ray.get(server.status.remote(0.0, 0)).updating_s - updated_s))
        return MoveTimes(median(fetched[1:]), median(exchanged[1:]))


def move_times(
    ray: Any, size_bytes: int, rounds: int, server_node: str, worker_node: str, shards: int = 1
) -> MoveTimes:  # fmt: skip
    """Of a vector between a server and a worker on these nodes. Several shards are on one node after another."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    numbers = size_bytes // FLOAT_BYTES
    layout = Layout((PhaseLayout(Rule("sgd", 1e-3), (("all", (numbers,)),)),), 0, 1_000_000, 1, "float32")
    workload = resolve("dnn", {"data": "digits", "device": "cpu", "threads": 1})
    job = Job(find_strategy("stale-sync"), layout, workload, 1, 1, "cpu", numbers, shards=shards)
    sharding = Sharding(job)

    def placed(kind: type, node: str, job: Job) -> Any:
        where = NodeAffinitySchedulingStrategy(node, soft=False)
        options = {"num_cpus": 0, "memory": SOME_MEMORY, "max_concurrency": 8, "scheduling_strategy": where}
        return ray.remote(kind).options(**options).remote(job)

    state = ServerState(torch.zeros(numbers))
    server = placed(Server, server_node, job if shards == 1 else sharding.of_server)
    mover = placed(Mover, worker_node, job)
    others = None if shards == 1 else ShardHandles(ray, job, sharding, DriverSettings(), lambda: None)
    try:
        if others is None:
            ray.get(server.begin.remote(state, math.inf))
        else:
            others.begin(state)
            own = sharding.state_of_server(state)
            ray.get(server.begin.remote(own, math.inf, others.followers, others.generation))
        servers = ServerActors(server, others.actors if others is not None else ())
        found: MoveTimes = ray.get(mover.times.remote(servers, rounds))
        return found
    finally:
        for actor in (server, mover, *(others.followers if others is not None else ())):
            ray.kill(actor)


def measure_node_link(ray: Any, large_bytes: int = LARGE_BYTES) -> LinkSpeed:
    """The link between two nodes: medians over pairs of the first node and others.

    A small fetch takes two latencies, and a large exchange two transfers more.
    """
    nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
    if len(nodes) < 2:
        raise InputError("the cluster has one node, so there is no network between nodes to measure")
    latencies, rates = [], []
    for other in nodes[1 : 1 + MOST_PAIRS]:
        small = move_times(ray, SMALL_BYTES, SMALL_ROUNDS, nodes[0], other)
        large = move_times(ray, large_bytes, LARGE_ROUNDS, nodes[0], other)
        latencies.append(small.fetch_s / 2)
        rates.append(2 * large_bytes / max(1e-9, large.exchange_s - small.fetch_s))
    return LinkSpeed(NODE_TO_NODE, median(latencies), median(rates))
