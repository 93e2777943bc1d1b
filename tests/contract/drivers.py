"""One way to train with any driver; the contract is checked on what comes back from all."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from paceline.record import load
from paceline.simulation.virtual_cluster import VirtualCluster
from paceline.strategy.distribution import Distribution
from paceline.strategy.event_record import EventRecord
from paceline.strategy.strategy import Strategy
from paceline.training.checkpoint import load_checkpoint
from paceline.training.drivers.local import launcher
from paceline.training.virtual_run import run_virtual
from paceline.workload import Workload
from tests.contract.small_training import GAMMA

DRIVERS = ("virtual", "local")
RAY = pytest.param("ray", marks=pytest.mark.soak)
"""Its actors take seconds to start; `tests/training/drivers/ray` has the part that is not for `make soak`."""
ALL_DRIVERS = (*DRIVERS, RAY)


@dataclass(frozen=True, eq=False)
class Trained:
    parameters: Tensor
    distribution: Distribution
    accuracy: float
    directory: Path

    @property
    def events(self) -> EventRecord:
        found: EventRecord = load(self.directory / "events.json")
        return found


def train(
    driver: str,
    workload: Workload,
    strategy: Strategy,
    workers: int,
    directory: Path,
    *,
    cluster: VirtualCluster = GAMMA,
    **options: Any,
) -> Trained:
    if driver == "virtual":
        run = run_virtual(workload, strategy, workers=workers, cluster=cluster, out=directory, **options)
    elif driver == "ray":
        from paceline.training.drivers.ray import launcher as ray_launcher

        run = ray_launcher.run(workload, strategy, workers=workers, out=directory, **options)
    else:
        run = launcher.run(workload, strategy, workers=workers, out=directory, **options)
    saved = load_checkpoint(directory).parameters
    flat = torch.cat([tensor.flatten() for tensor in saved.values() if tensor.is_floating_point()])
    assert run.distribution is not None
    assert run.status == "finished"
    return Trained(flat, run.distribution, run.test_accuracy, directory)
