"""How many workers there are is one number: they take the GPUs in turn, from none to many."""

from __future__ import annotations

import pytest
import torch

from paceline.errors import WorkloadError
from paceline.step.build import load_data
from paceline.training.worker_parts import share_machine
from tests.training.drivers.local.small import workload


@pytest.fixture
def devices(monkeypatch):
    """The devices of so many workers on a machine with so many GPUs."""

    def of(gpus: int, workers: int, device: str = "auto") -> list[str]:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
        monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
        made = workload(device=device)
        return share_machine(made, load_data(made), workers).devices

    return of


@pytest.mark.parametrize(
    ("gpus", "workers", "found"),
    [
        (0, 3, ["cpu", "cpu", "cpu"]),
        (1, 1, ["cuda:0"]),
        (1, 3, ["cuda:0", "cuda:0", "cuda:0"]),
        (2, 1, ["cuda:0"]),
        (2, 4, ["cuda:0", "cuda:1", "cuda:0", "cuda:1"]),
        (8, 8, [f"cuda:{number}" for number in range(8)]),
    ],
)
def test_workers_take_gpus_in_turn(devices, gpus, workers, found):
    assert devices(gpus, workers) == found
    if gpus:
        assert devices(gpus, workers, "cuda") == found


def test_the_device_can_be_said(devices):
    assert devices(4, 2, "cpu") == ["cpu", "cpu"]
    assert devices(4, 2, "cuda:3") == ["cuda:3", "cuda:3"]


def test_gpus_that_are_not_there_are_refused(devices):
    with pytest.raises(WorkloadError, match="device 'cuda' is not available: this machine has no GPU"):
        devices(0, 2, "cuda")
    with pytest.raises(WorkloadError, match="device 'cuda:2' is not available: this machine has 2 GPUs"):
        devices(2, 2, "cuda:2")
