"""Operations of one workload, timed alone with its own shapes, take the place of estimates for that workload."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

import paceline
from paceline.cluster import Device, Peak
from paceline.cost.calibration import StepOverheads
from paceline.cost.device_scaling import scaled
from paceline.cost.model import CostModel
from paceline.cost.op_replay import TensorForm, TracedCalls
from paceline.cost.own_operations import own_operations, with_own
from paceline.cost.timing import Stopwatch, Timed
from paceline.cost.workload_tracing import data_shape_of, trace_workload
from paceline.record import load, save
from paceline.workload import Workload, resolve
from tests.cost.invented import calibration

SETTINGS = {"data": "digits", "batch": 16, "threads": 1}
LENET = {**SETTINGS, "device": "cpu"}
SECONDS = 5e-3


def traced(workload: Workload) -> tuple[TracedCalls, list]:
    calls: TracedCalls = {}
    return calls, list(trace_workload(workload, data_shape_of(workload), calls=calls).operations)


@pytest.fixture
def timed(monkeypatch):
    """Every operation runs, and is said to take the same."""

    def time(self, call, probe, fresh=None):
        call()
        return Timed(SECONDS, SECONDS, 1.0, SECONDS / 2)

    monkeypatch.setattr(Stopwatch, "time", time)


def test_memory_of_a_library_is_not_made_up():
    """An LSTM's backward pass reads addresses from it: with other values PyTorch ends the process."""
    calls, _ = traced(resolve("lstm", {"batch": 4, "device": "cpu", "threads": 1}))
    unsafe = {key[0] for key, call in calls.items() if not call.is_safe}
    assert unsafe == {"mkldnn_rnn_layer_backward"}


@pytest.mark.parametrize("network", ["lenet5", "dnn", "lstm", "transformer", "vae", "recursive"])
def test_every_operation_can_run_alone_or_is_estimated(network, timed):
    data = {"data": "digits"} if network in ("lenet5", "vae") else {}
    workload = resolve(network, {"batch": 4, "device": "cpu", "threads": 1, **data})
    own = own_operations(workload, [], calibration())
    _, operations = traced(workload)
    assert own.cover(operations, 1) and not own.cover(operations, 2)
    missing = {trial.name for trial in own.trials if not trial.seconds}
    assert missing <= {"bernoulli_", "mkldnn_rnn_layer_backward"}, missing
    assert {trial.seconds for trial in own.trials if trial.seconds} == {SECONDS}


def test_tensors_have_the_shapes_strides_and_types_of_the_network():
    images = torch.ones(2, 3, 4, 4).to(memory_format=torch.channels_last)
    numbers, mask = torch.ones(4, dtype=torch.int64), torch.ones(3, dtype=torch.bool)
    for tensor in (torch.ones(3, 4).t(), torch.ones(1).expand(5, 2), images, torch.zeros(0, 3), numbers, mask):
        made = TensorForm.of(tensor).made()
        assert (made.shape, made.stride(), made.dtype) == (tensor.shape, tensor.stride(), tensor.dtype)
    values = TensorForm((1000,), (1,), torch.float32).made()
    assert float(values.min()) >= 0.5 and float(values.max()) <= 1.5


def test_predictions_of_the_workload_use_its_own_times(timed):
    workload = resolve("lenet5", LENET)
    overheads = StepOverheads()
    base = replace(calibration(), step_overheads={"flat": overheads})
    own = replace(own_operations(workload, [], base), step_overheads={"flat": overheads})
    _, operations = traced(workload)
    predicted = paceline.predict("lenet5", replace(base, own=own), **SETTINGS)
    layers_s = sum(layer.forward_s + layer.backward_s for layer in predicted.layers)
    assert layers_s == pytest.approx(SECONDS * len(operations))


def test_its_update_is_timed_too(timed):
    workload = resolve("lenet5", LENET)
    base = replace(calibration(), step_overheads={"flat": StepOverheads()})
    own = replace(own_operations(workload, [], base), step_overheads={"flat": StepOverheads()})
    update_s = paceline.predict("lenet5", replace(base, own=own), **SETTINGS).parts_s["update"]
    assert update_s == pytest.approx(SECONDS * round(update_s / SECONDS)) and update_s > 0


def test_other_sizes_are_predicted_as_without_them(timed):
    base = replace(calibration(), step_overheads={"flat": StepOverheads()})
    own = own_operations(resolve("lenet5", LENET), [], base)
    other = {**SETTINGS, "batch": 32}
    with_them, without = (paceline.predict("lenet5", each, **other) for each in (replace(base, own=own), base))
    assert with_them.iteration_s == without.iteration_s and with_them.layers == without.layers


def test_an_operation_of_no_known_family_is_known_once_it_was_timed(timed):
    workload = Workload(f"{__name__}:Cumulative", **LENET)
    base = replace(calibration(), step_overheads={"flat": StepOverheads()})
    assert "cumsum" in paceline.predict(workload, base).unknown
    own = replace(own_operations(workload, [], base), step_overheads={"flat": StepOverheads()})
    predicted = paceline.predict(workload, replace(base, own=own))
    assert not predicted.unknown


class Cumulative(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.output = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.output(x.flatten(1).cumsum(1))


def test_times_are_those_of_the_machine_at_its_usual_speed(monkeypatch):
    """A probe that takes twice as long as during the calibration halves the time beside it."""
    monkeypatch.setattr(Stopwatch, "time", lambda *_: Timed(SECONDS, SECONDS, 2e-3, SECONDS / 2))
    usual = dict.fromkeys(("product", "convolution", "elementwise"), 1e-3)
    base = calibration()
    base = replace(base, sets=tuple(replace(each, probes_s=usual) for each in base.sets))
    own = own_operations(resolve("lenet5", LENET), [], base)
    assert {trial.seconds for trial in own.trials} == {SECONDS / 2}


def test_they_are_saved_with_the_calibration(tmp_path, timed):
    base = calibration()
    own = replace(own_operations(resolve("lenet5", LENET), [], base), step_overheads={"flat": StepOverheads()})
    save(replace(base, own=own), tmp_path / "calibration.json")
    found = load(tmp_path / "calibration.json")
    assert found.own == own
    _, operations = traced(resolve("lenet5", LENET))
    costed = CostModel(with_own(found, operations, 1), threads=1).timed(operations)
    assert {each.seconds for each in costed} == {SECONDS}


def test_they_are_of_this_device_only(timed):
    """A device that is scaled from this one has none of its times."""
    base = replace(calibration(), step_overheads={"flat": StepOverheads()})
    own = replace(own_operations(resolve("lenet5", LENET), [], base), step_overheads={"flat": StepOverheads()})
    here = Device("two cores", "cpu", Peak(float32=1e11), memory_bandwidth=2e10, cores=2)
    other = replace(here, name="faster cores", peak=Peak(float32=2e11), memory_bandwidth=4e10)
    with_them, without = (
        paceline.predict("lenet5", scaled(each, here, other), **SETTINGS) for each in (replace(base, own=own), base)
    )
    assert with_them.iteration_s == without.iteration_s


def test_an_address_goes_without_a_workload():
    with pytest.raises(paceline.PacelineError, match="leave out `workload`"):
        paceline.calibrate("cpu", address="10.0.0.1:6379", workload="lenet5")


def test_operations_that_do_not_fit_into_memory_are_estimated(monkeypatch, timed):
    monkeypatch.setattr("paceline.cost.own_operations.free_memory_bytes", lambda: 200_000)
    own = own_operations(resolve("lenet5", LENET), [], calibration())
    small = {trial.name for trial in own.trials if trial.seconds}
    assert "addmm" in small and not all(trial.seconds for trial in own.trials)
    largest = max(own.trials, key=lambda trial: trial.sizes[0] * (trial.family == "relu"))
    assert largest.family == "relu" and largest.seconds == 0.0


def test_what_cannot_be_traced_is_refused_before_any_trial(monkeypatch):
    monkeypatch.setattr("paceline.cost.calibrating._trials", lambda *_: pytest.fail("a trial was made"))
    with pytest.raises(paceline.PacelineError, match="no data source 'nothing'"):
        paceline.calibrate("cpu", workload="lenet5", data="nothing")


def test_settings_need_a_workload():
    with pytest.raises(paceline.PacelineError, match="batch is a setting of a workload: pass workload="):
        paceline.calibrate("cpu", batch=32)


def test_only_float32_is_timed():
    with pytest.raises(paceline.PacelineError, match="float32 only, not in bfloat16"):
        paceline.calibrate("cpu", workload=resolve("lenet5", {**LENET, "precision": "bfloat16"}))
