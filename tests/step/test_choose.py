"""Which step is taken, why, and what is said when the one asked for cannot be had."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from paceline.errors import NetworkError, WorkloadError
from paceline.step import choose, compiled
from paceline.step.build import assemble, load_data
from paceline.step.choose import make_step
from paceline.step.compile_choice import compiling_pays
from paceline.step.equality import Difference
from paceline.step.phase import Outcome
from paceline.step.tally import Tally
from paceline.workload import resolve
from tests.step.small_parts import dataset_of, parts_for, rows

L = nn.Linear


class PartlyUsed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = L(6, 3), L(2, 2)

    def forward(self, x):
        return self.used(x)


class Fails(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = L(6, 3)

    def forward(self, x):
        raise AssertionError


def built_in(network: str, **settings):
    workload = resolve(network, {"data": "digits:100", "batch": 20, "epochs": 1, **settings})
    return assemble(workload, load_data(workload), torch.device("cpu"))


def test_a_chain_is_written_out():
    step, choice = make_step(built_in("mlp"), "auto")
    assert (step.kind, choice.kind) == ("flat", "flat")
    assert choice.reason == "a chain of layers, its gradient written out, all parameters updated at once"


def test_other_networks_are_flat():
    assert make_step(built_in("lenet5"), "auto")[1].reason == "all parameters updated at once"


def test_parameters_of_different_types_take_the_plain_step():
    parts = parts_for(nn.Sequential(L(6, 4), nn.Tanh(), L(4, 3)), rows())
    parts.phases[0].parameters[0].data = parts.phases[0].parameters[0].data.double()
    parts.phases[0].gradient = lambda batch, generator: zero_outcome(parts)  # type: ignore[method-assign]
    step, choice = make_step(parts, "auto")
    assert (step.kind, choice.reason) == ("plain", "the parameters differ in type or device")


def zero_outcome(parts):
    return Outcome(torch.zeros(()), [torch.zeros_like(p) for p in parts.phases[0].parameters])


def test_parameters_without_a_gradient_take_the_plain_step_and_stay_as_they_are():
    network = PartlyUsed()
    parts = parts_for(network, rows(), l2=0.5, optimizer="momentum")
    before = network.unused.weight.detach().clone()
    step, choice = make_step(parts, "auto")
    assert (step.kind, choice.reason) == ("plain", "some parameters get no gradient")
    step.begin(0)
    step.advance(3, Tally(1))
    assert torch.equal(network.unused.weight, before)


@pytest.mark.parametrize("kind", ["flat", "compiled"])
def test_such_a_network_cannot_have_another_step(kind):
    with pytest.raises(WorkloadError, match=f"step '{kind}' is not possible here: some parameters get no gradient"):
        make_step(parts_for(PartlyUsed(), rows()), kind)


@pytest.mark.parametrize("kind", ["plain", "flat", "auto"])
def test_code_of_the_users_own_that_fails_is_one_line(kind):
    with pytest.raises(NetworkError) as raised:
        make_step(parts_for(Fails(), rows()), kind)
    assert str(raised.value) == "own:build fails on the first batch of own:data: AssertionError"


def test_a_loss_for_labels_on_numbers_says_which_one_to_use():
    parts = parts_for(L(6, 1), dataset_of(torch.zeros(20, 6), torch.zeros(20)), loss="hinge")
    with pytest.raises(NetworkError, match="for targets that are numbers use `loss='squared'`"):
        make_step(parts, "auto")


def test_the_trial_changes_nothing():
    network = nn.Sequential(L(6, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), L(4, 3))
    parts = parts_for(network, rows())
    before = {name: value.clone() for name, value in network.state_dict().items()}
    make_step(parts, "auto")
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


def test_a_name_that_is_unknown():
    with pytest.raises(WorkloadError, match=r"step 'plane' is unknown: did you mean plain"):
        make_step(built_in("mlp"), "plane")


def test_a_graph_needs_a_gpu():
    with pytest.raises(WorkloadError, match="step 'graph' is not possible here: there is no GPU in use"):
        make_step(built_in("mlp"), "graph")


def test_compiling_needs_a_compiler(monkeypatch):
    monkeypatch.setattr(choose, "check_compiler", lambda: "no C++ compiler (g++)")
    with pytest.raises(WorkloadError, match=r"step 'compiled' is not possible here: no C\+\+ compiler"):
        make_step(built_in("mlp"), "compiled")


def test_a_network_that_compiling_would_pay_for_is_trained_without_a_compiler(monkeypatch):
    monkeypatch.setattr(choose, "check_compiler", lambda: "no C++ compiler (g++)")
    monkeypatch.setattr(choose, "compiling_pays", lambda parts, updates: "it pays")
    step, choice = make_step(built_in("lenet5"), "auto")
    assert (step.kind, choice.reason) == ("flat", "all parameters updated at once; no C++ compiler (g++)")


def test_a_compiler_that_fails_is_no_obstacle_unless_asked_for(monkeypatch):
    def fail(parts):
        raise RuntimeError("cannot\nbe done")

    monkeypatch.setattr(choose, "check_compiler", lambda: None)
    monkeypatch.setattr(choose, "_compiled", fail)
    monkeypatch.setattr(choose, "compiling_pays", lambda parts, updates: "it pays")
    reason = make_step(built_in("lenet5"), "auto")[1].reason
    assert reason == "all parameters updated at once; the step cannot be compiled: RuntimeError: cannot be done"
    with pytest.raises(WorkloadError, match="step 'compiled' is not possible here: RuntimeError: cannot be done; use"):
        make_step(built_in("lenet5"), "compiled")


def test_a_compiled_step_that_computes_something_else_is_refused(monkeypatch):
    monkeypatch.setattr(choose, "check_compiler", lambda: None)
    monkeypatch.setattr(compiled, "compare_first_update", lambda parts, step: Difference(1.5, 0.3, 0.1))
    with pytest.raises(WorkloadError, match=r"the first update differs by 3\.0e-01, where rounding explains 1\.0e-01"):
        make_step(built_in("lenet5"), "compiled")


def test_compiling_pays_on_a_gpu_in_bfloat16_for_networks_that_are_trained_long_enough():
    parts = built_in("lenet5", precision="bfloat16")
    assert "in 1,000,000,000 updates" in compiling_pays(parts, 10**9, on_gpu=True)
    assert compiling_pays(parts, 5, on_gpu=True) is None
    assert compiling_pays(parts, 10**9) is None, "on a CPU"
    assert compiling_pays(built_in("lenet5"), 10**9, on_gpu=True) is None, "in float32"
