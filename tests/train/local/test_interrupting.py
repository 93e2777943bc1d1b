"""Ctrl-C, SIGTERM and SIGKILL of the launcher: everything ends, and the run can go on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from paceline.errors import CheckpointError
from paceline.record import load
from paceline.strategy.strategy import preset
from paceline.train import local, trainer
from paceline.train.checkpoint import load_checkpoint
from tests.train.local.small import own_processes, workload

ROOT = Path(__file__).parents[3]


@pytest.fixture
def started():
    """Starts trainings in processes of their own, which do not outlive the test."""
    processes = []

    def start(directory: Path, strategy: str = "downpour", shards: int = 1, how: str = "auto") -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tests.train.local.a_training", str(directory), strategy, str(shards), how]
        processes.append(subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.wait()


def wait_for(condition, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.02)


def updates(directory: Path) -> int:
    return load_checkpoint(directory).updates if (directory / "checkpoint.pt").exists() else 0


def assert_gone(children: list[int]) -> None:
    wait_for(lambda: not any(Path(f"/proc/{child}").exists() for child in children), 10.0)


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)], ids=["ctrl-c", "sigterm"]
)
def test_an_interrupted_run_can_go_on(tmp_path, started, number):
    place = tmp_path / "run"
    process = started(place)
    wait_for(lambda: updates(place) > 20)
    children = own_processes(process.pid)
    assert len(children) == 3
    process.send_signal(number)
    said, _ = process.communicate(timeout=30)
    assert process.returncode == 130
    assert f"go on with: paceline train --resume {place}" in said
    assert_gone(children)
    before = load(place)
    assert before.status == "interrupted"
    saved = load_checkpoint(place)
    run = local.resume(place, changes={"epochs": saved.epoch + 3})
    assert run.status == "finished"
    assert run.resumed == 1
    assert run.distribution.ledger.applied_by_epoch == (23,) * (saved.epoch + 3)
    assert run.updates == 23 * (saved.epoch + 3)
    assert [epoch.epoch for epoch in run.epochs] == list(range(1, saved.epoch + 4))


def test_ctrl_c_while_processes_start(tmp_path, started):
    process = started(tmp_path / "run")
    wait_for(lambda: len(own_processes(process.pid)) == 3)
    children = own_processes(process.pid)
    os.kill(process.pid, signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 130
    assert_gone(children)
    assert updates(tmp_path / "run") == 0


def test_nobody_survives_the_launcher_s_sudden_death(tmp_path, started):
    place = tmp_path / "run"
    process = started(place, "sync")
    wait_for(lambda: updates(place) > 10)
    children = own_processes(process.pid)
    process.kill()
    process.wait()
    assert_gone(children)
    saved = load_checkpoint(place)
    run = local.resume(place, changes={"epochs": saved.epoch + 1})
    assert run.distribution.ledger.applied_by_epoch == (23,) * (saved.epoch + 1)


@pytest.mark.parametrize(
    "number", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.slow)], ids=["sigkill", "ctrl-c"]
)
def test_no_shard_outlives_the_launcher(tmp_path, started, number):
    place = tmp_path / "run"
    process = started(place, "sync", 2)
    wait_for(lambda: updates(place) > 10)
    children = own_processes(process.pid)
    assert len(children) == 4
    process.send_signal(number)
    process.communicate(timeout=30)
    assert_gone(children)
    saved = load_checkpoint(place)
    run = local.resume(place, changes={"epochs": saved.epoch + 1})
    assert run.distribution.shards == 2
    assert run.distribution.ledger.applied_by_epoch == (23,) * (saved.epoch + 1)


def test_a_resumed_synchronous_run_ends_with_the_same_parameters(tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    made = workload(epochs=4, optimizer="momentum", lr=0.05)
    local.run(made, "sync", workers=2, out=whole)
    local.run(workload(epochs=2, optimizer="momentum", lr=0.05), "sync", workers=2, out=parts)
    local.resume(parts, changes={"epochs": 4})
    a, b = load_checkpoint(whole).parameters, load_checkpoint(parts).parameters
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_the_correction_s_memory_goes_on_too(tmp_path):
    place = tmp_path / "run"
    local.run(workload(epochs=2), preset("delay-compensated"), workers=2, out=place)
    kept = load_checkpoint(place).optimizer["corrections"]
    assert all(float(of_group["squares"].sum()) > 0 for of_group in kept)
    run = local.resume(place, changes={"epochs": 3})
    assert run.distribution.strategy == preset("delay-compensated")
    assert len(run.epochs) == 3


def test_a_run_in_one_process_is_not_for_this_driver(tmp_path):
    trainer.run(workload(epochs=1), out=tmp_path / "alone")
    with pytest.raises(CheckpointError, match="is of a run in one process"):
        local.resume(tmp_path / "alone")
