"""Each of twelve described tasks gets the family that the guide gives for it, and a file that trains."""

from __future__ import annotations

import pytest

import paceline as package
from paceline.networks.known import KNOWN
from paceline.record import dump
from paceline.workload import resolve
from tests.advice.tasks import TWELVE, Described

QUICK = ("rows of a table", "a short code for each row")
"""Trained in the first tier."""

described = pytest.mark.parametrize("each", TWELVE, ids=lambda each: each.name)


@pytest.fixture(autouse=True)
def not_calibrated(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_there_are_twelve_and_every_network_exists():
    assert len({each.name for each in TWELVE}) == 12
    assert {each.network for each in TWELVE} <= KNOWN.keys()


@described
def test_the_family_is_the_one_that_the_guide_gives(each: Described, tmp_path):
    advice = package.advise(each.task, **each.settings, out=tmp_path / "out")
    assert (advice.family, advice.workload.network) == (each.family, each.network)
    assert advice.choice("family").value == each.family
    assert resolve(str(tmp_path / "out" / "workload.toml")) == advice.workload  # what the file says is what was advised
    assert dump(package.load(tmp_path / "out" / "advice.json")) == dump(advice)
    topics = [choice.topic for choice in advice.choices]
    assert topics == [
        "family", "network", "initial weights", "device", "batch", "epochs", "parallelism", "synchronisation",
        "prefetching",
    ]  # fmt: skip
    assert all(choice.reason and "\n" not in choice.reason for choice in advice.choices)


def trains(each: Described, paceline) -> None:
    assert paceline("advise", each.task, *_flags(each.settings), "--out", "advice").code == 0
    epochs = [] if each.epochs is None else ["--epochs", str(each.epochs)]
    result = paceline("train", "advice/workload.toml", *epochs, "--out", "run")
    assert result.code == 0, result.err
    run = package.load("run/record.json")
    assert run.status == "finished" and run.updates > 0 and run.workload.network == each.network


@pytest.mark.parametrize("name", QUICK)
def test_its_file_trains(name, paceline):
    trains(next(each for each in TWELVE if each.name == name), paceline)


@pytest.mark.soak
@described
def test_every_file_trains(each: Described, paceline):
    trains(each, paceline)


def _flags(settings: dict[str, object]) -> list[str]:
    return [word for key, value in settings.items() for word in (f"--{key}", str(value))]
