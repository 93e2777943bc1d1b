"""How fast the Ray driver moves large vectors between a worker and the server, and how fast Ray's object store is."""

from __future__ import annotations

import math
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import torch

from paceline.step.optimizers import Rule
from paceline.strategy.layout import Layout, PhaseLayout
from paceline.strategy.presets import find_strategy
from paceline.training.drivers.ray.job import Job
from paceline.training.drivers.ray.messages import Push, ServerState, WorkerReport
from paceline.workload import resolve


def put_gb_per_s(numbers: int, repeats: int) -> float:
    """`ray.put` of an array, as `ray microbenchmark` measures it in "single client put gigabytes"."""
    import ray

    array = np.zeros(numbers, dtype=np.float32)
    times = []
    for _ in range(repeats + 1):
        start_s = perf_counter()
        reference = ray.put(array)
        times.append(perf_counter() - start_s)
        del reference
    return array.nbytes / median(times[1:]) / 1e9


class Mover:
    """A worker that only communicates."""

    def __init__(self, job: Job) -> None:
        self.job = job

    def rates(self, server: Any, repeats: int) -> dict[str, float]:
        """Gigabytes a second of parameters that are fetched, and of payloads that are pushed."""
        from paceline.training.drivers.ray.server_link import ServerLink, ray

        torch.set_num_threads(1)
        link = ServerLink(server, self.job, 0, 1)
        reply, _ = link.receive(link.send_join())
        link.joined(reply)
        while reply.task is None:
            reply, _ = link.receive(link.send(WorkerReport()))
        into = torch.zeros(self.job.layout.size)
        payload = torch.zeros(self.job.payload_size)
        fetched, pushed = [], []
        for _ in range(repeats + 1):
            task = reply.task
            start_s = perf_counter()
            link.parameters.put_into(into, link.fetch(task.sequence, 0)[1])
            fetched.append(perf_counter() - start_s)
            updated_s = ray.get(server.status.remote(0.0, 0)).updating_s
            start_s = perf_counter()
            reply, pieces = link.receive(
                link.send(WorkerReport(), Push(task.sequence, 1, 1, size=len(payload)), payload)
            )
            link.parameters.put_into(into, pieces)
            took_s = perf_counter() - start_s
            pushed.append(took_s - (ray.get(server.status.remote(0.0, 0)).updating_s - updated_s))
        size = into.nbytes
        return {"pull": size / median(fetched[1:]) / 1e9, "push and pull": 2 * size / median(pushed[1:]) / 1e9}


def driver_gb_per_s(numbers: int, repeats: int, nodes: tuple[str, str]) -> dict[str, float]:
    """Between a server and a worker on these nodes, without the time of updates."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    from paceline.training.drivers.ray.server import Server

    layout = Layout((PhaseLayout(Rule("sgd", 1e-3), (("all", (numbers,)),)),), 0, 1_000_000, 1, "float32")
    workload = resolve("dnn", {"data": "digits", "device": "cpu", "threads": 1})
    job = Job(find_strategy("stale-sync"), layout, workload, 1, 1, "cpu", numbers)

    def placed(kind: type, node: str) -> Any:
        where = NodeAffinitySchedulingStrategy(node, soft=False)
        return ray.remote(kind).options(num_cpus=0, max_concurrency=8, scheduling_strategy=where)

    server, mover = placed(Server, nodes[0]).remote(job), placed(Mover, nodes[1]).remote(job)
    ray.get(server.begin.remote(ServerState(torch.zeros(numbers)), math.inf))
    found: dict[str, float] = ray.get(mover.rates.remote(server, repeats))
    ray.kill(server)
    ray.kill(mover)
    return found
