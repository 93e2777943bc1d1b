"""The list of mutants is up to date, and one of them is killed here; `python -m tests.mutations` runs all of them."""

from __future__ import annotations

import ast
import shutil

import pytest

from tests.mutations.__main__ import survives
from tests.mutations.mutants import ROOT, mutants


def test_there_are_enough_promises():
    assert len({mutant.promise for mutant in mutants()}) >= 40


@pytest.mark.parametrize("mutant", mutants(), ids=lambda mutant: mutant.promise)
def test_the_line_is_there_once_and_the_code_remains_python(mutant, tmp_path):
    target = tmp_path / mutant.file
    target.parent.mkdir(parents=True)
    shutil.copy(ROOT / mutant.file, target)
    mutant.apply(tmp_path)
    assert ast.dump(ast.parse(target.read_text())) != ast.dump(ast.parse((ROOT / mutant.file).read_text()))
    assert all((ROOT / path).exists() for path in mutant.tests)


@pytest.mark.slow
def test_a_broken_line_is_noticed():
    assert not survives(next(mutant for mutant in mutants() if mutant.promise.startswith("A ring all-reduce")))


@pytest.mark.soak
@pytest.mark.parametrize("mutant", mutants(), ids=lambda mutant: mutant.promise)
def test_every_broken_line_is_noticed(mutant):
    assert not survives(mutant)
