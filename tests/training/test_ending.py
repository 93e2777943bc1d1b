"""A run that an exception ends is failed, diverged or interrupted in its record, and the exception is not hidden."""

from __future__ import annotations

import errno

import pytest

from paceline import record
from paceline.errors import Diverged, Interrupted, OutputError, PacelineError
from paceline.training import trainer
from paceline.training.ending import message_of, recorded_end, status_after
from paceline.training.watcher import Silent
from paceline.workload import Workload

WORKLOAD = Workload(epochs=2, threads=1)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (Diverged("x"), "diverged"),
        (Interrupted("x"), "interrupted"),
        (KeyboardInterrupt(), "interrupted"),
        (PacelineError("x"), "failed"),
        (RuntimeError("x"), "failed"),
        (MemoryError(), "failed"),
    ],
)
def test_the_status_follows_from_the_error(error, status):
    assert status_after(error) == status


def test_the_message_is_one_line():
    assert message_of(OutputError("no room\n  left")) == "no room left"
    assert message_of(RuntimeError("bad")) == "RuntimeError: bad"
    assert message_of(MemoryError()) == "MemoryError"


def test_what_cannot_be_written_does_not_hide_the_error():
    def full(status: str, message: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(RuntimeError, match="the first"), recorded_end(full):
        raise RuntimeError("the first")


class Raises(Silent):
    def __init__(self, error: BaseException) -> None:
        self.error = error

    def begun(self, *_: object) -> None:
        raise self.error


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [(ValueError("boom"), "failed", "ValueError: boom"), (KeyboardInterrupt(), "interrupted", "KeyboardInterrupt")],
)
def test_a_run_that_fails_does_not_stay_running(tmp_path, error, status, said):
    with pytest.raises(type(error)):
        trainer.run(WORKLOAD, out=tmp_path / "run", watcher=Raises(error))
    found = record.load(tmp_path / "run")
    assert (found.status, found.error) == (status, said)
    resumed = trainer.resume(tmp_path / "run")
    assert (resumed.status, resumed.error) == ("finished", "")


def test_a_full_disk_at_the_end_does_not_hide_what_ended_the_run(tmp_path, monkeypatch):
    saved = record.save

    def save(value, path):
        if value.status != "running":
            raise OutputError(f"cannot write {path}: No space left on device")
        saved(value, path)

    monkeypatch.setattr(record, "save", save)
    with pytest.raises(ValueError, match="boom"):
        trainer.run(WORKLOAD, out=tmp_path / "run", watcher=Raises(ValueError("boom")))


def test_a_run_that_diverges_says_so(tmp_path):
    with pytest.raises(Diverged):
        trainer.run(Workload(lr=1e30, optimizer="momentum", threads=1), out=tmp_path / "run")
    found = record.load(tmp_path / "run")
    assert found.status == "diverged" and "lower the learning rate" in found.error
    assert found.warnings[0].startswith("the loss is not finite")


def test_a_start_that_fails_leaves_no_directory(tmp_path):
    with pytest.raises(PacelineError):
        trainer.run(Workload(batch=10**6), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
