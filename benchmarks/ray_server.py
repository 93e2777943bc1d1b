"""The asynchronous parameter server of Ray's documentation: the driver passes weights and gradients as objects."""

from __future__ import annotations

import importlib.util
from time import perf_counter
from typing import Any

import torch
from torch import nn
from torch.nn import functional

BATCH, WORKERS, RATE = 64, 2, 0.1


def _network() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(784, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 10)
    )  # fmt: skip


class ParameterServer:
    def __init__(self) -> None:
        torch.set_num_threads(1)
        self.network = _network()
        self.optimizer = torch.optim.SGD(self.network.parameters(), lr=RATE)

    def apply_gradients(self, *gradients: list[Any]) -> dict[str, Any]:
        summed = [sum(parts[1:], parts[0]) for parts in zip(*gradients, strict=True)]
        self.optimizer.zero_grad()
        for parameter, gradient in zip(self.network.parameters(), summed, strict=True):
            parameter.grad = torch.from_numpy(gradient)
        self.optimizer.step()
        return self.get_weights()

    def get_weights(self) -> dict[str, Any]:
        return {name: tensor.cpu() for name, tensor in self.network.state_dict().items()}


class DataWorker:
    def __init__(self) -> None:
        torch.set_num_threads(1)
        self.network = _network()
        self.x, self.y = torch.rand(55_000, 1, 28, 28), torch.randint(10, (55_000,))
        self.step = 0

    def compute_gradients(self, weights: dict[str, Any]) -> list[Any]:
        self.network.load_state_dict(weights)
        chosen = torch.arange(self.step * BATCH, (self.step + 1) * BATCH) % len(self.x)
        self.step += 1
        self.network.zero_grad()
        functional.cross_entropy(self.network(self.x[chosen]), self.y[chosen]).backward()
        return [p.grad.numpy() for p in self.network.parameters() if p.grad is not None]


def ray_updates_per_s(updates: int) -> float | None:
    """Updates a second after a warm-up; None where Ray is not installed."""
    if importlib.util.find_spec("ray") is None:
        return None
    import ray

    if not ray.is_initialized():
        ray.init(num_cpus=WORKERS + 1, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    server: Any = ray.remote(ParameterServer).remote()
    workers: list[Any] = [ray.remote(DataWorker).remote() for _ in range(WORKERS)]
    weights = server.get_weights.remote()
    gradients = {worker.compute_gradients.remote(weights): worker for worker in workers}
    warm_up = min(20, updates)
    start_s = perf_counter()
    for number in range(warm_up + updates):
        if number == warm_up:
            start_s = perf_counter()
        ready, _ = ray.wait(list(gradients))
        worker = gradients.pop(ready[0])
        weights = server.apply_gradients.remote(ready[0])
        gradients[worker.compute_gradients.remote(weights)] = worker
    ray.get(weights)
    rate = updates / (perf_counter() - start_s)
    for actor in (server, *workers):
        ray.kill(actor)
    return rate
