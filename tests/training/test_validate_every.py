"""One process is validated as often as several are: after epochs, updates or seconds of training."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

import paceline
from paceline import record
from paceline.errors import Interrupted, StrategyError
from paceline.training import trainer
from paceline.training.watcher import Progress, Silent
from paceline.workload import resolve

WORKLOAD = resolve("mlp", {"data": "digits:256", "batch": 32, "epochs": 4, "device": "cpu"})
BATCHES = 8


@pytest.mark.parametrize(("every", "epochs"), [("1epoch", [1, 2, 3, 4]), ("3epochs", [3, 4])])
def test_after_epochs_and_always_after_the_last(every, epochs):
    run = trainer.run(WORKLOAD, validate_every=every)
    assert [point.epoch for point in run.points] == epochs
    assert [point.updates for point in run.points] == [BATCHES * epoch for epoch in epochs]
    assert [e.epoch for e in run.epochs if e.test_loss == e.test_loss] == epochs
    last = run.points[-1]
    assert (last.test_loss, last.test_accuracy) == (run.test_loss, run.test_accuracy)
    assert last.seconds == run.train_s and last.train_loss == run.epochs[-1].loss
    assert run.warnings == ()


def test_at_exactly_so_many_updates_and_at_the_ends_of_epochs():
    run = trainer.run(WORKLOAD, validate_every="3updates")
    assert [point.updates for point in run.points] == [3, 6, 8, 9, 12, 15, 16, 18, 21, 24, 27, 30, 32]
    assert [point.epoch for point in run.points] == [point.updates / BATCHES for point in run.points]
    assert all(later.seconds > earlier.seconds for earlier, later in pairwise(run.points))
    assert run.trace.parts().count("validate") == 1 and run.trace.total_s("validate") > 0


def test_validating_more_often_changes_no_parameter(tmp_path):
    often = trainer.run(WORKLOAD, validate_every="2updates", out=tmp_path / "often")
    rarely = trainer.run(WORKLOAD, out=tmp_path / "rarely")
    assert often.test_loss == rarely.test_loss and often.epochs[-1].loss == rarely.epochs[-1].loss


def test_after_seconds_of_training():
    run = trainer.run(WORKLOAD, validate_every="0.000001s")
    assert len(run.points) > 4, "every chunk takes longer than that"


class StopsInEpoch3(Silent):
    def advanced(self, progress: Progress) -> None:
        if progress.epoch == 2:
            raise Interrupted("for this test")


def test_a_resumed_run_validates_where_it_would_have(tmp_path: Path):
    with pytest.raises(Interrupted):
        trainer.run(WORKLOAD, validate_every="3updates", out=tmp_path, checkpoint_every_s=0, watcher=StopsInEpoch3())
    run = trainer.resume(tmp_path, validate_every="3updates")
    assert [point.updates for point in run.points] == [3, 6, 8, 9, 12, 15, 16, 18, 21, 24, 27, 30, 32]
    assert record.load(tmp_path).points == run.points


def test_an_interval_that_is_none_is_refused_before_anything_is_loaded(tmp_path):
    with pytest.raises(StrategyError, match="`validate_every='often'` should be like 1epoch"):
        trainer.run(WORKLOAD, validate_every="often", out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_public_functions_have_it_too(tmp_path):
    given = {"data": "digits:256", "batch": 32, "device": "cpu", "validate_every": "4updates"}
    run = paceline.train("mlp", epochs=1, out=tmp_path / "run", **given)
    assert run.distribution is None and [point.updates for point in run.points] == [4, 8]
    run = paceline.resume(tmp_path / "run", epochs=2, validate_every="5updates")
    assert [point.updates for point in run.points] == [4, 8, 10, 15, 16]
