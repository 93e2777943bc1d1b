"""A run that is killed and resumed ends with bitwise the parameters of one that was left alone."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from paceline import record
from paceline.errors import CheckpointError
from paceline.training import trainer
from paceline.workload import Workload, resolve
from tests.own_process import OwnProcess, program
from tests.training.deaths import Death, DiesAfter, parameters, same

SMALL = {"data": "digits:640", "batch": 48, "epochs": 3}


@pytest.mark.parametrize("step", ["plain", "flat"])
@pytest.mark.parametrize(
    "workload",
    [
        resolve("dnn", SMALL | {"dropout": 0.4}),
        resolve("mlp", SMALL | {"optimizer": "adam", "schedule": "warm-up:0.5+cosine"}),
        pytest.param(
            resolve("lenet5", SMALL | {"data": "digits:320", "epochs": 2, "optimizer": "nadam", "lr": 0.001}),
            marks=pytest.mark.slow,
        ),
        resolve("resnet20", {"data": "synthetic:3x8x8/4:96", "batch": 20, "epochs": 2}),
    ],
    ids=lambda w: w.network,
)
def test_a_death_at_any_point_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workload: Workload, step: str
) -> None:
    monkeypatch.setattr(trainer, "CHUNK_S", 1e-6)  # two steps a chunk, so that there are many points to die at
    trainer.run(workload, step=step, out=tmp_path / "undisturbed", checkpoint_every_s=0)
    place = tmp_path / "killed"
    with pytest.raises(Death):
        trainer.run(workload, step=step, out=place, checkpoint_every_s=0, watcher=DiesAfter(3))
    deaths = 1
    while True:
        try:
            run = trainer.resume(place, checkpoint_every_s=0, watcher=DiesAfter(2))
            break
        except Death:
            deaths += 1
    assert deaths >= 2
    assert run.status == "finished" and run.resumed == deaths and len(run.epochs) == workload.epochs
    assert same(parameters(place), parameters(tmp_path / "undisturbed"))
    undisturbed = record.load(tmp_path / "undisturbed")
    assert run.updates == undisturbed.updates
    assert [e.test_accuracy for e in run.epochs] == [e.test_accuracy for e in undisturbed.epochs]
    for a, b in zip(run.epochs, undisturbed.epochs, strict=True):
        assert a.loss == pytest.approx(b.loss, rel=1e-6) and a.train_accuracy == b.train_accuracy


def train(*words: str | Path) -> OwnProcess:
    return program("train", *words, "--checkpoint-every", "0", quiet=True)


@pytest.mark.slow
def test_sigkill_at_random_moments(tmp_path: Path) -> None:
    words = ("dnn", "--data", "digits", "--epochs", "80", "--set", "dropout=0.3", "--threads", "1")
    with train(*words, "--out", tmp_path / "undisturbed") as undisturbed:
        assert undisturbed.wait() == 0
    place, choose = tmp_path / "killed", random.Random(1)
    started = train(*words, "--out", place)
    kills = 0
    while True:
        while not (place / "checkpoint.pt").exists() and started.poll() is None:
            time.sleep(0.01)
        try:
            started.wait(timeout=choose.uniform(0.0, 0.4) if kills < 6 else 120)
        except subprocess.TimeoutExpired:
            os.kill(started.pid, signal.SIGKILL)
            kills += 1
        code = started.wait()
        started.close()
        if code == 0:
            break
        assert code == -signal.SIGKILL
        started = train("--resume", place)
    assert kills >= 3
    assert same(parameters(place), parameters(tmp_path / "undisturbed"))


def test_resuming_a_finished_run_changes_nothing(tmp_path: Path) -> None:
    done = trainer.run(resolve("mlp", SMALL), out=tmp_path / "run")
    before = parameters(tmp_path / "run")
    again = trainer.resume(tmp_path / "run")
    assert again.status == "finished" and again.updates == done.updates
    assert again.samples_per_s == done.samples_per_s
    assert same(parameters(tmp_path / "run"), before)


def test_more_epochs_can_be_asked_for(tmp_path: Path) -> None:
    trainer.run(resolve("mlp", SMALL), out=tmp_path / "run")
    assert len(trainer.resume(tmp_path / "run", changes={"epochs": 5}).epochs) == 5


@pytest.mark.parametrize("change", [{"lr": 0.5}, {"batch": 10}, {"seed": 3}, {"data": "digits"}, {"network": "dnn"}])
def test_what_makes_another_run_is_refused(tmp_path: Path, change: dict[str, object]) -> None:
    trainer.run(resolve("mlp", SMALL), out=tmp_path / "run")
    with pytest.raises(CheckpointError, match=next(iter(change))):
        trainer.resume(tmp_path / "run", changes=change)
