"""Which step `auto` chooses, and why."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest
import torch
from torch import nn

from paceline.cost.calibration import CompiledRatio
from paceline.cost.calibrations import bundled_calibrations
from paceline.errors import NetworkError, WorkloadError
from paceline.step import make
from paceline.step.phase import Outcome
from paceline.step.tally import Tally
from paceline.training import compile_choice, step_choice
from paceline.training.compile_choice import compiling_pays
from paceline.training.step_choice import choose_step
from paceline.training.step_estimate import Target
from tests.step.small_parts import Fails, PartlyUsed, built_in, dataset_of, parts_for, rows

L = nn.Linear


def test_a_chain_is_written_out():
    step, choice = choose_step(built_in("mlp"), "auto")
    assert (step.kind, choice.kind) == ("flat", "flat")
    assert choice.reason == "a chain of layers, its gradient written out, all parameters updated at once"


def test_other_networks_are_flat():
    assert choose_step(built_in("lenet5"), "auto")[1].reason == "all parameters updated at once"


def test_parameters_of_different_types_take_the_plain_step():
    parts = parts_for(nn.Sequential(L(6, 4), nn.Tanh(), L(4, 3)), rows())
    parts.phases[0].parameters[0].data = parts.phases[0].parameters[0].data.double()
    parts.phases[0].gradient = lambda batch, generator: zero_outcome(parts)  # type: ignore[method-assign]
    step, choice = choose_step(parts, "auto")
    assert (step.kind, choice.reason) == ("plain", "the parameters differ in type or device")


def zero_outcome(parts):
    return Outcome(torch.zeros(()), [torch.zeros_like(p) for p in parts.phases[0].parameters])


def test_parameters_without_a_gradient_take_the_plain_step_and_stay_as_they_are():
    network = PartlyUsed()
    parts = parts_for(network, rows(), l2=0.5, optimizer="momentum")
    before = network.unused.weight.detach().clone()
    step, choice = choose_step(parts, "auto")
    assert (step.kind, choice.reason) == ("plain", "some parameters get no gradient")
    step.begin(0)
    step.advance(3, Tally(1))
    assert torch.equal(network.unused.weight, before)


def test_a_loss_for_labels_on_numbers_says_which_one_to_use():
    parts = parts_for(L(6, 1), dataset_of(torch.zeros(20, 6), torch.zeros(20)), loss="hinge")
    with pytest.raises(NetworkError, match="for targets that are numbers use `loss='squared'`"):
        choose_step(parts, "auto")


def test_the_trial_changes_nothing():
    network = nn.Sequential(L(6, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), L(4, 3))
    parts = parts_for(network, rows())
    before = {name: value.clone() for name, value in network.state_dict().items()}
    choose_step(parts, "auto")
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


def test_a_network_that_compiling_would_pay_for_is_trained_without_a_compiler(monkeypatch):
    monkeypatch.setattr(make, "check_compiler", lambda: "no C++ compiler (g++)")
    monkeypatch.setattr(step_choice, "compiling_pays", lambda parts, updates: "it pays")
    step, choice = choose_step(built_in("lenet5"), "auto")
    assert (step.kind, choice.reason) == ("flat", "all parameters updated at once; no C++ compiler (g++)")


def test_a_compiler_that_fails_is_no_obstacle_unless_asked_for(monkeypatch):
    def fail(parts):
        raise RuntimeError("cannot\nbe done")

    monkeypatch.setattr(make, "check_compiler", lambda: None)
    monkeypatch.setattr(make, "CompiledStep", fail)
    monkeypatch.setattr(step_choice, "compiling_pays", lambda parts, updates: "it pays")
    reason = choose_step(built_in("lenet5"), "auto")[1].reason
    assert reason == "all parameters updated at once; the step cannot be compiled: RuntimeError: cannot be done"
    with pytest.raises(WorkloadError, match="step 'compiled' is not possible here: RuntimeError: cannot be done; use"):
        choose_step(built_in("lenet5"), "compiled")


@pytest.mark.parametrize("kind", ["plain", "flat", "auto"])
def test_code_of_the_users_own_that_fails_is_one_line(kind):
    with pytest.raises(NetworkError) as raised:
        choose_step(parts_for(Fails(), rows()), kind)
    assert str(raised.value) == "own:build fails on the first batch of own:data: AssertionError"


H200 = Target.named("NVIDIA H200", "bfloat16", on_gpu=True)


def test_compiling_pays_on_a_gpu_in_bfloat16_for_networks_that_are_trained_long_enough():
    parts = built_in("lenet5", precision="bfloat16")
    assert "in 1,000,000,000 updates, by the cost model of NVIDIA H200" in compiling_pays(parts, 10**9, H200)
    assert compiling_pays(parts, 5, H200) is None
    assert compiling_pays(parts, 10**9) is None, "on a CPU"
    assert compiling_pays(built_in("lenet5"), 10**9, H200) is None, "in float32"


def test_without_a_calibration_the_time_of_a_step_follows_from_its_arithmetic():
    unknown = Target.named("Nobody's GPU", "bfloat16", on_gpu=True)
    assert unknown.calibration is None
    assert "by its arithmetic" in compiling_pays(built_in("lenet5", precision="bfloat16"), 10**10, unknown)


@pytest.mark.parametrize("ratio, pays", [(0.7, True), (1.1, False)])
def test_what_a_calibration_measured_of_compiled_steps_decides(ratio, pays):
    cpu = bundled_calibrations()["EPYC 9004 2 vCPU"]
    measured = {"any": CompiledRatio("flat", ratio, 0.2, ("one",))}
    known = Target(False, replace(cpu, compiled=measured))
    assert (compiling_pays(built_in("lenet5"), 10**7, known) is not None) is pays
    assert compiling_pays(built_in("lenet5"), 10, known) is None, "too few updates"
    assert compiling_pays(built_in("lstm"), 10**7, known) is None, "recurrent"


def test_without_a_calibration_of_its_own_a_cpu_does_not_compile_and_loads_no_cost_model(monkeypatch, tmp_path):
    monkeypatch.setattr(compile_choice, "calibration_folder", lambda: tmp_path / "none")
    monkeypatch.setitem(sys.modules, "paceline.training.step_estimate", None)  # importing it fails
    assert compiling_pays(built_in("lenet5"), 10**9) is None
