"""A small training and what is left of it, for the tests of the local driver."""

from __future__ import annotations

import gc
import os
import signal
from pathlib import Path
from typing import Any

from torch import nn

from paceline.workload import Workload, resolve


def workload(**changes: Any) -> Workload:
    settings = {
        "data": "digits", "epochs": 3, "batch": 64, "dropout": 0.0, "l2": 0.0, "optimizer": "sgd", "lr": 0.1,
        "schedule": "constant", "device": "cpu",
    }  # fmt: skip
    return resolve("dnn", {**settings, **changes})


def own_processes(launcher: int | None = None) -> list[int]:
    """Processes of this driver that are still running: of one launcher, or of any."""
    found = []
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            try:
                command = (place / "cmdline").read_text()
                status = (place / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            of_launcher = launcher is None or int(status[1]) == launcher
            if "paceline.train.local." in command and status[0] != "Z" and of_launcher:
                found.append(int(place.name))
    return found


def assert_nothing_is_left() -> None:
    """No process, no descriptor and no mapping of shared memory in this process."""
    gc.collect()
    assert own_processes(os.getpid()) == []
    targets = []
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            targets.append(str(descriptor.readlink()))
        except OSError:
            continue
    assert not [t for t in targets if "paceline-parameters" in t or "eventfd" in t]
    assert "paceline-parameters" not in Path("/proc/self/maps").read_text()


def in_a_worker() -> bool:
    return "paceline.train.local.worker_process" in Path("/proc/self/cmdline").read_text()


def builds_only_in_the_launcher() -> nn.Module:
    if in_a_worker():
        raise RuntimeError("no such machine")
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))


def ends_its_worker() -> nn.Module:
    if in_a_worker():
        os.kill(os.getpid(), signal.SIGSEGV)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))


def with_batch_norm() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 10))
