"""Ctrl-C, SIGTERM and SIGKILL of the launcher: everything ends, nothing is left, and the run can be resumed."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import torch

from paceline.record import load
from paceline.training.checkpoint import load_checkpoint
from paceline.training.drivers.local import launcher
from tests.own_process import OwnProcess
from tests.training.drivers.local.small import (
    SAMPLES,
    assert_gone,
    assert_nothing_is_left,
    endless,
    fork_servers,
    open_files,
    own_processes,
    parameters,
    wait_for,
    workload,
)

ROOT = Path(__file__).parents[4]


@pytest.fixture
def started():
    """Starts trainings in processes of their own, which do not outlive the test."""
    processes = []

    def start(directory: Path, *arguments: str) -> OwnProcess:
        words = ["-m", "tests.training.drivers.local.a_training", directory, *arguments]
        processes.append(OwnProcess(words, cwd=ROOT))
        return processes[-1]

    yield start
    for process in processes:
        process.close()


def updates(directory: Path) -> int:
    return load_checkpoint(directory).updates if (directory / "checkpoint.pt").exists() else 0


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)], ids=["ctrl-c", "sigterm"]
)
def test_an_interrupted_run_is_resumed_where_it_was(tmp_path, started, number):
    """A synchronous run ends with the bits of one that was never interrupted."""
    place = tmp_path / "run"
    process = started(place, "sync")
    wait_for(lambda: updates(place) > 20)
    children = [*own_processes(process.pid), *fork_servers(process.pid)]
    assert len(children) == 4
    process.send_signal(number)
    said, _ = process.communicate()
    assert process.returncode == 130
    assert f"continue with: `paceline.resume('{place}')`" in said
    assert_gone(children)
    assert load(place).status == "interrupted"
    epochs = load_checkpoint(place).epoch + 2
    run = launcher.resume(place, changes={"epochs": epochs})
    assert (run.status, run.resumed) == ("finished", 1)
    assert run.distribution.ledger.applied_by_epoch == (-(-SAMPLES // 4),) * epochs
    assert [epoch.epoch for epoch in run.epochs] == list(range(1, epochs + 1))
    launcher.run(endless(epochs), "sync", out=tmp_path / "whole")
    assert torch.equal(parameters(place), parameters(tmp_path / "whole"))


@pytest.mark.slow
def test_ctrl_c_while_processes_start(tmp_path, started):
    process = started(tmp_path / "run")
    wait_for(lambda: own_processes(process.pid))
    children = [*own_processes(process.pid), *fork_servers(process.pid)]
    os.kill(process.pid, signal.SIGINT)
    process.communicate()
    assert process.returncode == 130
    assert_gone(children)


@pytest.mark.parametrize("strategy", ["downpour", pytest.param("softsync", marks=pytest.mark.slow)])
def test_nobody_survives_the_launcher_s_sudden_death(tmp_path, started, strategy):
    place = tmp_path / "run"
    process = started(place, strategy)
    wait_for(lambda: updates(place) > 10)
    children = [*own_processes(process.pid), *fork_servers(process.pid)]
    assert len(children) == 4
    process.kill()
    process.wait()
    assert_gone(children)
    assert not list(Path("/dev/shm").glob("*paceline*"))
    epochs = load_checkpoint(place).epoch + 2
    run = launcher.resume(place, changes={"epochs": epochs})
    assert run.distribution.ledger.applied_by_epoch == (-(-SAMPLES // 4),) * epochs


def test_a_launcher_that_trains_again_and_again_opens_no_more_files():
    launcher.run(workload(epochs=1), "downpour", workers=2)
    before = len(open_files())
    for strategy in ("downpour", "sync", "softsync"):
        launcher.run(workload(epochs=1), strategy, workers=2)
    assert len(open_files()) <= before
    assert len(fork_servers(os.getpid())) == 1
    assert_nothing_is_left()
