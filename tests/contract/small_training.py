"""A small workload that trains in well under a second, on either driver."""

from __future__ import annotations

from typing import Any

import torch

from paceline.data.dataset import Dataset
from paceline.simulation.durations import DurationDistribution
from paceline.simulation.simulation import Simulation
from paceline.simulation.virtual_cluster import VirtualCluster
from paceline.step.build import assemble, load_data
from paceline.step.step import Parts
from paceline.strategy.strategy import Strategy
from paceline.testing.contract import simulate_training
from paceline.workload import Workload, resolve

CPU = torch.device("cpu")
GAMMA = VirtualCluster(compute=DurationDistribution("gamma", (100.0, 0.01)))
EQUAL = VirtualCluster(compute=DurationDistribution("constant", (1.0,)))

SETTINGS: dict[str, Any] = {
    "data": "digits", "dropout": 0.0, "l2": 0.0, "optimizer": "sgd", "lr": 0.05, "schedule": "constant",
    "batch": 8, "epochs": 1, "device": "cpu", "threads": 1, "options.hidden": [16],
}  # fmt: skip

_data: dict[str, Dataset] = {}


def workload(network: str = "dnn", **changes: Any) -> Workload:
    settings = {**SETTINGS, **changes}
    if settings.get("options") == {}:  # of a network of one's own
        del settings["options.hidden"]
    return resolve(network, settings)


def parts(network: str = "dnn", **changes: Any) -> Parts:
    made = workload(network, **changes)
    if made.data not in _data:
        _data[made.data] = load_data(made)
    return assemble(made, _data[made.data], CPU)


def trained(strategy: Strategy, workers: int, cluster: VirtualCluster = GAMMA, **changes: Any) -> Simulation:
    """What training the small workload in virtual time gives."""
    how = {key: changes.pop(key) for key in ("record", "faults", "on_bad_gradient") if key in changes}
    return simulate_training(parts(**changes), strategy, workers, cluster, **how)


def start(**changes: Any) -> torch.Tensor:
    """The initial weights of the small workload, flat."""
    return torch.cat([p.detach().flatten() for p in parts(**changes).network.parameters()])


def difference(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a - b).norm() / b.norm())
