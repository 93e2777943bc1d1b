"""A strategy and an exchange under new names, in a file of the user's, go through every verb that takes a strategy."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

import tests.contract.users_parts as parts
from paceline.record import load


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
