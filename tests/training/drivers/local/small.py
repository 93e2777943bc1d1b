"""A small training and what is left of it, for the tests of the local driver."""

from __future__ import annotations

import gc
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from paceline.training.checkpoint import load_checkpoint
from paceline.workload import Workload, resolve

SAMPLES, BATCHES = 1437, 23
"""Of an epoch."""


def workload(network: str = "dnn", **changes: Any) -> Workload:
    settings = {
        "data": "digits", "epochs": 3, "batch": 64, "dropout": 0.0, "l2": 0.0, "optimizer": "sgd", "lr": 0.1,
        "schedule": "constant", "device": "cpu", "threads": 1,
    }  # fmt: skip
    if network == "dnn":
        settings["options.hidden"] = [16]
    else:
        settings["dropout"] = None
    return resolve(network, {**settings, **changes})


def endless(epochs: int = 100_000) -> Workload:
    """Epochs that take longer than their validation: else no checkpoint would be written before the end."""
    return workload(epochs=epochs, batch=4, optimizer="momentum", lr=0.01)


def own(name: str, **changes: Any) -> Workload:
    """The small workload with one of the networks below."""
    return workload(f"{__name__}:{name}", **changes)


def parameters(directory: Path) -> Tensor:
    return torch.cat([tensor.flatten() for tensor in load_checkpoint(directory).parameters.values()])


def wait_for(condition: Callable[[], Any], seconds: float = 90.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.02)


# What is left


def _children(parent: int) -> list[tuple[int, str]]:
    """The running children of a process, with their command lines."""
    found = []
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            try:
                command = (place / "cmdline").read_text()
                status = (place / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if int(status[1]) == parent and status[0] != "Z":
                found.append((int(place.name), command))
    return found


def fork_servers(launcher: int) -> list[int]:
    return [process for process, command in _children(launcher) if "fork_server.py" in command]


def own_processes(launcher: int) -> list[int]:
    """Servers and workers of a launcher that are still running."""
    return [process for server in fork_servers(launcher) for process, _ in _children(server)]


def open_files() -> list[str]:
    targets = []
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            targets.append(str(descriptor.readlink()))
        except OSError:
            continue
    return targets


def assert_nothing_is_left() -> None:
    """No process of a run, no descriptor and no mapping of shared memory; only the fork server for the next run."""
    gc.collect()
    assert own_processes(os.getpid()) == []
    assert not [t for t in open_files() if "paceline-parameters" in t or "eventfd" in t]
    assert "paceline-parameters" not in Path("/proc/self/maps").read_text()
    assert not list(Path("/dev/shm").glob("*paceline*"))


def assert_gone(processes: list[int]) -> None:
    wait_for(lambda: not any(Path(f"/proc/{process}").exists() for process in processes), 30.0)


# Networks


def in_a_worker() -> bool:
    return "fork_server.py" in Path("/proc/self/cmdline").read_text()


def sound() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))


def builds_only_in_the_launcher() -> nn.Module:
    if in_a_worker():
        raise RuntimeError("no such machine")
    return sound()


def ends_its_worker() -> nn.Module:
    if in_a_worker():
        os.kill(os.getpid(), signal.SIGSEGV)
    return sound()


def with_batch_norm() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 10))


class _Slow(nn.Module):
    """Takes its time now and then, for a step that neither fails nor hangs."""

    def __init__(self, pause: Callable[[float], None], seconds: float, every: int = 5) -> None:
        super().__init__()
        self.output, self.pause, self.seconds, self.every, self.steps = nn.Linear(64, 10), pause, seconds, every, 0

    def forward(self, x: Tensor) -> Tensor:
        if self.training and in_a_worker():
            self.steps += 1
            if self.steps % self.every == 0:
                self.pause(self.seconds)
        return self.output(x.flatten(1))


SLOW_STEP_S = 0.7


def spin(seconds: float) -> None:
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        torch.ones(1000).sum()


def sleeps() -> nn.Module:
    return _Slow(time.sleep, SLOW_STEP_S)


def computes_long() -> nn.Module:
    return _Slow(spin, SLOW_STEP_S)


def sleeps_45_s() -> nn.Module:
    return _Slow(time.sleep, 45.0, every=1)


def computes_45_s() -> nn.Module:
    return _Slow(spin, 45.0, every=1)
