"""Candidates are really trained, the cheapest first, until one is good enough or the time is over."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

import paceline as package
from paceline.advice.advising import Consultation
from paceline.advice.task import describe_task
from paceline.advice.trying import in_order_of_cost, try_candidates
from paceline.errors import Diverged, InputError
from paceline.training.run import Run, ValidationPoint


@pytest.fixture(autouse=True)
def not_calibrated(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def finished() -> Run:
    """A record, for trainings that are only pretended."""
    return package.train("mlp", data="digits:100", epochs=1)


class Pretended:
    """Trains nothing: each candidate has the accuracy that is next, and takes ten seconds."""

    def __init__(self, run: Run, accuracies: list[float | None]) -> None:
        self.run, self.accuracies, self.seen, self.now = run, accuracies, [], 0.0

    def __call__(self, workload, *, out, watcher) -> Run:
        accuracy = self.accuracies[len(self.seen)]
        self.seen.append((workload, out))
        watcher.begun(self.run, [])
        self.now += 10
        watcher.advanced(None)
        if accuracy is None:
            raise Diverged("the loss became nan")
        return replace(self.run, points=(ValidationPoint(1, 1.0, 1, 1.0, 1.0, accuracy),))


def asked(**settings) -> Consultation:
    return Consultation.of(describe_task("classify", {"data": "digits", "error": "5%", **settings}))


def tried(pretended: Pretended, **settings):
    return try_candidates(asked(**settings), pretended, None, lambda trial, name: None, lambda: pretended.now)


def test_candidates_are_in_rising_order_of_predicted_cost():
    consultation = asked(device="H200")
    ordered = in_order_of_cost(consultation)
    seconds = [consultation.predictor.relative_s(workload, consultation.options[0]) for _, workload, _ in ordered]
    assert seconds == sorted(seconds) and ordered[0][1].network == "mlp"
    assert [each[1].network for each in in_order_of_cost(asked())] == ["mlp", "lenet5", "resnet20"]


def test_it_stops_at_the_first_that_is_good_enough(finished):
    advice = tried(Pretended(finished, [0.9, 0.96, 0.99]))
    assert [(t.workload.network, t.accepted) for t in advice.trials] == [("mlp", False), ("lenet5", True)]
    assert advice.met and advice.workload.network == "lenet5" and advice.chosen.error == pytest.approx(0.04)
    assert advice.family == "convolutional"
    assert "; 1 cheaper candidate did not reach it" in advice.choice("network").reason


def test_a_shallow_network_that_is_good_enough_is_advised(finished):
    advice = tried(Pretended(finished, [0.97]))
    assert advice.family == advice.choice("family").value == "feed-forward" and len(advice.trials) == 1


def test_without_a_good_one_the_best_is_chosen_and_it_is_said(finished):
    advice = tried(Pretended(finished, [0.90, 0.94, None]))
    assert not advice.met and advice.workload.network == "lenet5"
    assert [trial.status for trial in advice.trials] == ["finished", "finished", "diverged"]
    assert "above the acceptable 5.0 %" in advice.choice("network").reason


def test_the_time_ends_a_training_and_starts_no_other(finished):
    advice = tried(Pretended(finished, [0.9, 0.9, 0.9]), time="15s")
    assert [trial.status for trial in advice.trials] == ["finished", "out of time"]
    assert len(tried(Pretended(finished, [0.9, 0.9, 0.9]), time="25s").trials) == 3


@pytest.mark.parametrize(
    ("settings", "line"),
    [({"error": None}, "needs an acceptable `error`"), ({"data": None, "kind": "text"}, "needs your `data`")],
)
def test_what_trying_needs(settings, line):
    given = {key: value for key, value in {"data": "digits", "error": "5%", **settings}.items() if value is not None}
    task = "generate" if "kind" in given else "classify"
    with pytest.raises(InputError, match=line):
        package.advise(task, try_out=True, **given)


def test_real_candidates_are_trained_and_kept(paceline, tmp_path):
    result = paceline("advise", "classify", "--data", "digits", "--error", "10%", "--try", "--out", "tried")
    assert result.code == 0, result.err
    advice = package.load("tried/advice.json")
    (trial,) = advice.trials
    run = package.load(tmp_path / "tried" / "trials" / trial.directory / "record.json")
    assert trial.error == pytest.approx(1 - run.test_accuracy) and trial.error <= 0.1 and trial.wall_s > 0
    assert "tried mlp (hidden 64): error " in result.out and "finished" in result.out
    page = (tmp_path / "tried" / "summary.html").read_text(encoding="utf-8").replace("\u00a0", " ")
    assert ">Advice</h2>" in page and "To classify, train mlp (feed-forward)" in page and "1 candidate tried" in page
    assert advice.chosen == trial and (tmp_path / "tried" / "workload.toml").exists()


def test_an_error_that_none_reaches_ends_with_one_line(paceline, monkeypatch):
    ticks = itertools.count(step=30.0)
    monkeypatch.setattr("paceline.advice.trying.monotonic", lambda: next(ticks))
    monkeypatch.setattr("paceline.advice.trying.try_candidates.__defaults__", (lambda: next(ticks),))
    result = paceline(
        "advise", "classify", "--data", "digits", "--error", "0.01%", "--time", "50s", "--try", "--out", "t"
    )
    assert result.refused(1).startswith("no candidate is good enough: the lowest of 1 tried: error ")
    assert package.load("t/advice.json").trials[0].status == "out of time"
