"""Every public function has a docstring with an example, and each example does what it says."""

from __future__ import annotations

import doctest
import inspect

import pytest

import paceline

FUNCTIONS = sorted(name for name in paceline.__all__ if inspect.isfunction(getattr(paceline, name)))
LONG = {"calibrate", "reproduce"}


def test_the_verbs_are_among_them():
    assert {"train", "resume", "evaluate", "measure", "predict", "simulate", "plan", "verify"} <= set(FUNCTIONS)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in LONG else []) for name in FUNCTIONS]
)
def test_the_example_of_a_function_runs(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    function = getattr(paceline, name)
    example = doctest.DocTestParser().get_doctest(function.__doc__ or "", {"paceline": paceline}, name, None, 0)
    assert len(example.examples) >= 1, f"paceline.{name} has no example"
    assert any(f"paceline.{name}(" in line.source for line in example.examples)
    assert any(line.want for line in example.examples), "the example says nothing"
    failed, _ = doctest.DocTestRunner().run(example)
    assert not failed, capsys.readouterr().out
