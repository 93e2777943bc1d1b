"""Every public function has a docstring with an example, and each example does what it says."""

from __future__ import annotations

import doctest
import inspect

import pytest

import paceline
from paceline.cost import calibrating, reference_measuring
from paceline.cost.reference_networks import ROWS
from paceline.cost.shape_sampling import Limits
from paceline.reproduction.study import Study
from tests.experiment.test_studies import tiny

FUNCTIONS = sorted(name for name in paceline.__all__ if inspect.isfunction(getattr(paceline, name)))
LONG = ("calibrate", "reproduce")
"""The second tier makes their examples with little to do, `make soak` as they are."""


def test_the_verbs_are_among_them():
    assert {"train", "resume", "evaluate", "measure", "predict", "simulate", "plan", "verify"} <= set(FUNCTIONS)


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name not in LONG])
def test_the_example_of_a_function_runs(name, tmp_path, monkeypatch, capsys):
    run_example(name, tmp_path, monkeypatch, capsys)


@pytest.mark.slow
@pytest.mark.parametrize("name", LONG)
def test_a_long_example_runs_with_little_to_do(name, tmp_path, monkeypatch, capsys):
    study = tiny("scaling")
    monkeypatch.setattr(Study, "experiment", lambda self, *, quick, cache=None: study)
    monkeypatch.setattr(calibrating, "TRIALS", dict.fromkeys(calibrating.TRIALS, 6))
    monkeypatch.setattr(calibrating, "LIMITS", {"cpu": Limits(4e8, 2.0**22)})
    few = {"perceptron": (ROWS, (8,)), "convolutional": (ROWS, (4,))}
    monkeypatch.setattr(reference_measuring, "REFERENCES", {"cpu": few})
    run_example(name, tmp_path, monkeypatch, capsys)


@pytest.mark.soak
@pytest.mark.parametrize("name", LONG)
def test_a_long_example_runs(name, tmp_path, monkeypatch, capsys):
    run_example(name, tmp_path, monkeypatch, capsys)


def run_example(name, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    function = getattr(paceline, name)
    example = doctest.DocTestParser().get_doctest(function.__doc__ or "", {"paceline": paceline}, name, None, 0)
    assert len(example.examples) >= 1, f"paceline.{name} has no example"
    assert any(f"paceline.{name}(" in line.source for line in example.examples)
    assert any(line.want for line in example.examples), "the example says nothing"
    failed, _ = doctest.DocTestRunner().run(example)
    assert not failed, capsys.readouterr().out
