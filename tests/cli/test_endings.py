"""However a run ends, it says so in one line, and leaves what was there before as it was."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from paceline import record
from paceline.cli import progress
from tests.own_process import OwnProcess, program

LONG = (
    "train", "lenet5", "--data", "digits", "--epochs", "500", "--device", "cpu", "--threads", "1",
    "--checkpoint-every", "0", "--out", "run",
)  # fmt: skip


def begun(process: OwnProcess) -> None:
    for line in process.stdout:
        if line.startswith("epoch 1/"):
            return
    pytest.fail("it ended before its first epoch did")


@pytest.mark.slow
def test_a_reader_that_takes_one_line_of_a_run(tmp_path):
    command = f"{sys.executable} -m paceline train mlp --epochs 3 --out run"
    done = subprocess.run(f"{command} 2>err | head -1", shell=True, cwd=tmp_path, capture_output=True, text=True)
    assert len(done.stdout.splitlines()) == 1
    assert (tmp_path / "err").read_text() == ""


@pytest.mark.slow
def test_the_directory_of_a_run_that_vanishes(tmp_path):
    with program(*LONG, cwd=tmp_path) as process:
        begun(process)
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
        shutil.rmtree(tmp_path / "run", ignore_errors=True)  # it may have been written to meanwhile
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)  # a record written just then brings the directory back
        _, err = process.communicate()
    (line,) = err.splitlines()
    assert "Traceback" not in line and line.startswith(("paceline: cannot write run/", "paceline: stopped in epoch "))


@pytest.mark.slow
def test_an_impatient_user(tmp_path):
    with program(*LONG, cwd=tmp_path) as process:
        begun(process)
        for _ in range(20):
            process.send_signal(signal.SIGINT)
            time.sleep(0.005)
        _, err = process.communicate()
        assert process.returncode == 130, err
    assert "Traceback" not in err and err.splitlines()[-1].startswith(("paceline: interrupted", "paceline: stopped in"))


@pytest.mark.slow
def test_no_compiler(tmp_path):
    (tmp_path / "bin").mkdir()
    environment = {**os.environ, "PATH": str(tmp_path / "bin"), "CXX": ""}
    command = [sys.executable, "-m", "paceline", "train", "mlp", "--epochs", "1", "--step", "compiled"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    (line,) = done.stderr.splitlines()
    assert done.returncode == 2
    assert line.startswith("paceline: step 'compiled' is not possible here: no C++ compiler")
    assert [path.name for path in tmp_path.iterdir()] == ["bin"]


def test_stopping_before_the_first_step_leaves_no_directory(paceline, tmp_path, monkeypatch):
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("paceline.training.trainer.assemble", interrupt)
    assert paceline("train", "mlp").refused(code=130) == "interrupted"
    assert list(tmp_path.iterdir()) == []


def test_a_refused_run_leaves_the_page_of_another_alone(paceline, trained_copy):
    page = trained_copy / "summary.html"
    page.write_text("mine")
    paceline("train", "mlp", "--out", trained_copy).refused()
    paceline("train", "lenet5", "--resume", trained_copy).refused()
    assert page.read_text() == "mine"


def test_a_record_of_another_program_is_not_what_is_complained_about(paceline, tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "record.json").write_text("{}")
    assert paceline("train", "mlp", "--out", "other").refused().startswith("--out other is not empty")


def test_a_page_that_cannot_be_written_does_not_hide_what_happened(paceline, tmp_path, monkeypatch):
    def vanish(self, epoch) -> None:
        (tmp_path / "run" / "record.json").write_text("{}")

    monkeypatch.setattr(progress.TerminalWatcher, "begun", lambda self, run, notes: setattr(self, "run", run))
    monkeypatch.setattr(progress.TerminalWatcher, "advanced", vanish)
    arguments = ["--optimizer", "sgd", "--lr", "1e20", "--epochs", "3", "--out", "run"]
    assert paceline("train", "mlp", *arguments).refused(code=1).startswith("the loss became ")


# Records and checkpoints of other versions


def test_a_record_of_a_later_version(paceline, trained_copy):
    path = trained_copy / "record.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema": 99}))
    assert paceline("evaluate", trained_copy).code == 0, "evaluating needs only the checkpoint"
    assert paceline("train", "--resume", trained_copy, "--epochs", "21").code == 0, "and so does going on"
    assert json.loads(path.read_text())["schema"] == record.SCHEMA


def test_fewer_epochs_than_were_done(paceline, trained_copy):
    before = (trained_copy / "record.json").read_bytes()
    line = paceline("train", "--resume", trained_copy, "--epochs", "3").refused()
    assert line == f"{trained_copy} has already reached epoch 20, and --epochs 3 is lower"
    assert (trained_copy / "record.json").read_bytes() == before


def test_data_of_the_users_own_that_shrank(paceline, tmp_path):
    def write(count: int) -> None:
        Path("table").mkdir(exist_ok=True)
        for part, size in (("train", count), ("test", 5)):
            np.save(f"table/x_{part}.npy", np.ones((size, 4), dtype=np.float32))
            np.save(f"table/y_{part}.npy", np.arange(size) % 2)

    write(20)
    assert paceline("train", "mlp", "--data", "arrays:table", "--batch", "8", "--epochs", "2", "--out", "run").code == 0
    write(19)
    line = paceline("train", "--resume", "run", "--epochs", "3").refused()
    assert line == "run is of 20 + 5 samples, arrays:table now has 19 + 5"
    assert paceline("evaluate", "run").code == 0, "the test part is still the same"


def test_a_page_that_fails_does_not_hide_how_the_run_ended(paceline, tmp_path, monkeypatch):
    from paceline.api import train
    from paceline.training.training_run import TrainingRun

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    def fail(*_: object) -> None:
        raise RuntimeError("an import was interrupted")

    monkeypatch.setattr(TrainingRun, "finished_epoch", interrupt)
    monkeypatch.setattr(train, "_write", fail)
    ended = paceline("train", "mlp", "--data", "digits", "--epochs", "2", "--out", str(tmp_path / "run"))
    assert ended.code == 130
    assert json.loads((tmp_path / "run" / "record.json").read_text())["status"] == "interrupted"
