"""A strategy and an exchange under new names, in a file of the user's, go through every verb that takes a strategy."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

import tests.contract.users_parts as parts
from paceline.cluster import find_device
from paceline.planning import planning
from paceline.record import load, save
from tests.planning.invented import InventedPredictions


@pytest.fixture
def module(tmp_path, monkeypatch):
    """The user's file, in the folder where the commands are called."""
    shutil.copy(Path(parts.__file__), tmp_path / "my_parts.py")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "my_parts"
    sys.modules.pop("my_parts", None)


TRAINING = ("dnn", "--set", "data=digits", "--epochs", "1")


@pytest.mark.parametrize("driver", ["local", "virtual"])
def test_train_and_report(paceline, module, tmp_path, driver):
    how = ("--strategy", f"{module}:halving", "--workers", "2", "--driver", driver)
    result = paceline("train", *TRAINING, *how, "--out", str(tmp_path / "run"))
    assert result.code == 0, result.err
    assert load(tmp_path / "run").distribution.strategy.exchange == "my_parts:Halves"
    result = paceline("report", str(tmp_path / "run"), "--out", str(tmp_path / "page.html"))
    assert result.code == 0, result.err
    assert "halving" in (tmp_path / "page.html").read_text()


def test_simulate(paceline, module):
    result = paceline("simulate", *TRAINING[:3], "--strategy", f"{module}:halving", "--workers", "3")
    assert result.code == 0, result.err
    assert "halving" in result.out


def test_plan(paceline, module, monkeypatch):
    invented = InventedPredictions(samples=1437, parameter_bytes=200_000, flops=2e8)
    monkeypatch.setattr(planning, "default_predict", lambda workload: invented)
    how = ("--cluster", "g5.xlarge,g6.xlarge", "--strategies", f"sync,{module}:halving")
    found = paceline("plan", "mlp", *how, "--json", "-").json
    strategies = {one["candidate"]["strategy"]["name"]: one["candidate"]["strategy"] for one in found["simulated"]}
    assert strategies.keys() == {"sync", "halving"} and strategies["halving"]["exchange"] == "my_parts:Halves"


def test_verify(paceline, module, tmp_path):
    how = ("--strategy", f"{module}:halving", "--workers", "2", "--epochs", "2", "--out", "run")
    assert paceline("train", *TRAINING[:3], *how).code == 0
    prediction = InventedPredictions(samples=1437)(load(tmp_path / "run").workload, find_device("Ryzen 9 7950X"))
    save(prediction, tmp_path / "run" / "prediction.json")
    found = paceline("verify", "run", "--json", "-")
    assert found.code == 0, found.err
    step = next(row for row in found.json["rows"] if row["name"] == "a worker's step")
    assert step["measured_s"] > 0 and step["predicted_s"] > prediction.iteration_s / 2
