"""What is said when the step that was asked for cannot be had."""

from __future__ import annotations

import pytest

from paceline.errors import NetworkError, WorkloadError
from paceline.step import compiled, make
from paceline.step.equality import Difference
from paceline.step.make import make_step
from tests.step.small_parts import Fails, PartlyUsed, built_in, parts_for, rows


@pytest.mark.parametrize("kind", ["flat", "compiled"])
def test_such_a_network_cannot_have_another_step(kind):
    with pytest.raises(WorkloadError, match=f"step '{kind}' is not possible here: some parameters get no gradient"):
        make_step(parts_for(PartlyUsed(), rows()), kind)


@pytest.mark.parametrize("kind", ["plain", "flat"])
def test_code_of_the_users_own_that_fails_is_one_line(kind):
    with pytest.raises(NetworkError) as raised:
        make_step(parts_for(Fails(), rows()), kind)
    assert str(raised.value) == "own:build fails on the first batch of own:data: AssertionError"


def test_a_name_that_is_unknown():
    with pytest.raises(WorkloadError, match=r"step 'plane' is unknown: did you mean plain"):
        make_step(built_in("mlp"), "plane")


def test_a_graph_needs_a_gpu():
    with pytest.raises(WorkloadError, match="step 'graph' is not possible here: there is no GPU in use"):
        make_step(built_in("mlp"), "graph")


def test_compiling_needs_a_compiler(monkeypatch):
    monkeypatch.setattr(make, "check_compiler", lambda: "no C++ compiler (g++)")
    with pytest.raises(WorkloadError, match=r"step 'compiled' is not possible here: no C\+\+ compiler"):
        make_step(built_in("mlp"), "compiled")


def test_a_compiled_step_that_computes_something_else_is_refused(monkeypatch):
    monkeypatch.setattr(make, "check_compiler", lambda: None)
    monkeypatch.setattr(compiled, "compare_first_update", lambda parts, step: Difference(1.5, 0.3, 0.1))
    with pytest.raises(WorkloadError, match=r"the first update differs by 3\.0e-01, where rounding explains 1\.0e-01"):
        make_step(built_in("lenet5"), "compiled")
