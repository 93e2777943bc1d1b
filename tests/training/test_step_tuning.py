"""`step='tune'` times the kinds of step once, keeps the answer, and changes nothing about the training."""

from __future__ import annotations

import pytest
import torch

import paceline
from paceline.errors import PacelineError
from paceline.training import step_tuning
from paceline.training.step_tuning import StepTrial, tuned_step

SMALL = {"data": "digits:64", "batch": 16, "epochs": 1, "device": "cpu", "threads": 1}
TIMES = {"flat": 3e-3, "plain": 1e-3}


@pytest.fixture
def trials(tmp_path, monkeypatch):
    """The kinds of step that were timed, which then have the times of `TIMES`."""
    timed = []
    time_step = step_tuning._iteration_s

    def timing(parts, kind):
        time_step(parts, kind)
        timed.append(kind)
        return TIMES[kind]

    monkeypatch.setattr(step_tuning, "_iteration_s", timing)
    monkeypatch.setattr(step_tuning, "KINDS", tuple(TIMES))
    monkeypatch.setattr(step_tuning, "TRIAL_S", 0.01)
    monkeypatch.setattr(step_tuning, "cache_folder", lambda: tmp_path / "cache")
    return timed


def test_the_fastest_step_is_taken_and_kept(trials, tmp_path):
    first = paceline.train("lenet5", **SMALL, step="tune", out=tmp_path / "first")
    assert trials == ["flat", "plain"]
    assert first.step.kind == "plain" and "a trial on this machine" in first.step.reason
    again = paceline.train("lenet5", **SMALL, step="tune", out=tmp_path / "again")
    assert trials == ["flat", "plain"], "the second run should use the kept answer"
    assert again.step.kind == "plain" and "earlier trial" in again.step.reason


def test_other_settings_get_a_trial_of_their_own(trials, tmp_path):
    paceline.train("lenet5", **SMALL, step="tune")
    paceline.train("lenet5", **{**SMALL, "batch": 32}, step="tune")
    assert trials == ["flat", "plain"] * 2
    paceline.train("lenet5", **{**SMALL, "seed": 7, "lr": 0.01}, step="tune")
    assert trials == ["flat", "plain"] * 2


def test_a_corrupt_file_is_ignored(trials, tmp_path):
    paceline.train("lenet5", **SMALL, step="tune")
    (kept,) = (tmp_path / "cache" / "steps").iterdir()
    kept.write_text(kept.read_text()[:20])
    assert paceline.train("lenet5", **SMALL, step="tune").step.kind == "plain"
    assert trials == ["flat", "plain"] * 2
    assert paceline.load(kept).step == "plain"


def test_a_trial_does_not_change_the_training(trials, tmp_path):
    tuned = paceline.train("lenet5", **SMALL, step="tune", out=tmp_path / "tuned")
    asked = paceline.train("lenet5", **SMALL, step=tuned.step.kind, out=tmp_path / "asked")
    assert [epoch.loss for epoch in tuned.epochs] == [epoch.loss for epoch in asked.epochs]


def test_a_resumed_run_takes_the_recorded_step_without_a_trial(trials, tmp_path):
    out = tmp_path / "run"
    paceline.train("lenet5", **SMALL, step="tune", out=out)
    for kept in (tmp_path / "cache" / "steps").iterdir():
        kept.unlink()
    resumed = paceline.resume(out, epochs=2)
    assert resumed.step.kind == "plain" and trials == ["flat", "plain"]


def test_tune_is_for_training_only():
    for verb, more in ((paceline.measure, {}), (paceline.predict, {"device": "H200"})):
        with pytest.raises(PacelineError, match="tune"):
            verb("lenet5", data="digits", step="tune", **more)


def test_refused_kinds_are_recorded(trials, monkeypatch):
    def timing(parts, kind):
        if kind == "flat":
            raise RuntimeError("not here")
        return 1.0

    monkeypatch.setattr(step_tuning, "_iteration_s", timing)
    from paceline.step.build import assemble, load_data
    from paceline.workload import resolve

    workload = resolve("lenet5", SMALL)
    parts = assemble(workload, load_data(workload), torch.device("cpu"))
    step, _ = tuned_step(parts)
    found = paceline.load(step_tuning.trial_path(parts))
    step.close()
    assert isinstance(found, StepTrial) and found.step == "plain" and "not here" in found.refused["flat"]
