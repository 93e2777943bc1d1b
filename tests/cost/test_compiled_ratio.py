"""A compiled step is predicted by the ratio that networks of its kind had, with an interval that says so."""

from __future__ import annotations

from dataclasses import replace
from math import log

import pytest
import torch

import paceline.cost.compiled_trials as trials
from paceline.cost.calibrations import bundled_calibrations
from paceline.cost.compiled_ratio import ANY, ONE_NETWORK_LOG_SD, MeasuredRatio, network_kind, ratio_for, ratios_by_kind
from paceline.cost.predicting import predict
from paceline.cost.prediction import Prediction
from paceline.cost.workload_tracing import DataShape, trace_workload
from paceline.errors import WorkloadError
from paceline.workload import Workload, resolve

IMAGES = DataShape("image", (3, 32, 32), 10, 4096)
RATIOS = ratios_by_kind(
    [MeasuredRatio("a", "convolution", 0.8), MeasuredRatio("b", "convolution", 0.9), MeasuredRatio("c", "matmul", 0.5)],
    "graph",
)
H200 = replace(bundled_calibrations()["H200"], compiled=RATIOS)


def on(step: str, network: str = "resnet20", **settings: object) -> Prediction:
    return predict(resolve(network, {"batch": 32, **settings}), H200, data=IMAGES, step=step)


def test_a_kind_has_the_mean_of_its_networks_and_their_spread():
    assert RATIOS["convolution"].ratio == pytest.approx((0.8 * 0.9) ** 0.5)
    assert RATIOS["convolution"].networks == ("a", "b") and RATIOS["matmul"].ratio == pytest.approx(0.5)
    assert RATIOS["matmul"].log_sd == ONE_NETWORK_LOG_SD < RATIOS[ANY].log_sd
    far_apart = ratios_by_kind([MeasuredRatio("a", "matmul", 0.2), MeasuredRatio("b", "matmul", 1.0)], "flat")
    assert far_apart["matmul"].log_sd == pytest.approx(log(5) / 2)


def test_a_compiled_step_takes_the_measured_share_of_the_other():
    other, compiled = on("graph"), on("compiled")
    ratio = RATIOS["convolution"].ratio
    assert compiled.iteration_s == pytest.approx(ratio * other.iteration_s)
    assert sum(compiled.parts_s.values()) == pytest.approx(compiled.iteration_s)
    assert compiled.layers[1].forward_s == pytest.approx(ratio * other.layers[1].forward_s)
    assert compiled.high_s / compiled.low_s > other.high_s / other.low_s
    assert compiled.step == "compiled"
    assert compiled.basis == "calibrated; compiled: 0.85 times the graph step, as measured for convolution networks"


def test_a_kind_that_was_not_measured_is_less_certain():
    known = on("compiled", "mlp")
    other = predict(resolve("transformer", {"data": "tokens:64/96"}), H200, step="compiled")
    assert known.iteration_s == pytest.approx(0.5 * on("graph", "mlp").iteration_s)
    assert f"{RATIOS[ANY].ratio:.2f} times" in other.basis and "attention networks" in other.basis


def test_a_step_that_accumulates_gradients_is_compiled_too():
    other, compiled = on("graph", accumulate=4), on("compiled", accumulate=4)
    assert compiled.iteration_s < other.iteration_s


@pytest.mark.parametrize(("network", "kind"), [("resnet20", "convolution"), ("mlp", "matmul"), ("lstm", "recurrent")])
def test_the_kind_of_a_network(network, kind):
    assert network_kind(trace_workload(resolve(network, {"batch": 4}), IMAGES).operations) == kind


CPU = torch.device("cpu")


def test_a_calibration_compares_reference_networks(monkeypatch):
    asked: list[Workload] = []

    def compared(workload: Workload, one: str, other: str) -> float:
        asked.append(workload)
        assert (one, other) == ("compiled", "flat")
        if "attention" in workload.network:
            raise WorkloadError("step 'compiled' is not possible here: today")
        return 0.7

    monkeypatch.setattr(trials, "compare_steps", compared)
    monkeypatch.setattr(trials, "check_compiler", lambda: None)
    found, said = trials.compiled_ratios(CPU)
    assert {kind: each.ratio for kind, each in found.items()} == pytest.approx(
        {"matmul": 0.7, "convolution": 0.7, ANY: 0.7}
    )
    assert said.startswith("not measured compiled: attention in float32 (step 'compiled' is not possible")
    assert len(asked) == 3 and found["convolution"].step == "flat"


def test_half_precision_on_a_gpu_has_ratios_of_its_own(monkeypatch):
    monkeypatch.setattr(trials, "compare_steps", lambda workload, *_: 0.5 if workload.precision == "bfloat16" else 0.8)
    monkeypatch.setattr(trials, "check_compiler", lambda: None)
    found, said = trials.compiled_ratios(torch.device("cuda"), ("float32", "tf32", "bfloat16"))
    assert said == ""
    calibrated = replace(H200, compiled=found)
    ratios = [ratio_for(calibrated, "convolution", precision).ratio for precision in ("float32", "bfloat16", "float16")]
    assert ratios == pytest.approx([0.8, 0.5, 0.5])
    only = {key: each for key, each in found.items() if "bfloat16" not in key}
    assert ratio_for(replace(H200, compiled=only), "recurrent", "bfloat16").ratio == pytest.approx(0.8)


def test_compiling_does_not_take_longer_than_allowed(monkeypatch):
    now = iter(range(0, 1000, 20))
    monkeypatch.setattr(trials, "perf_counter", lambda: float(next(now)))
    monkeypatch.setattr(trials, "compare_steps", lambda *given: 0.5)
    monkeypatch.setattr(trials, "check_compiler", lambda: None)
    found, said = trials.compiled_ratios(CPU)
    assert len(found[ANY].networks) == 1 and "attention in float32 (no time left)" in said


def test_without_a_compiler_one_line_says_so(monkeypatch):
    monkeypatch.setattr(trials, "check_compiler", lambda: "no C++ compiler")
    assert trials.compiled_ratios(CPU) == ({}, "compiled steps were not measured: no C++ compiler")


@pytest.mark.serial
@pytest.mark.slow
def test_steps_are_compared_in_turns():
    from paceline.measurement.network_timing import compare_steps

    workload = Workload(f"{trials.REFERENCE_MODULE}:perceptron", "synthetic:3x40x40/10:512", batch=16, device="cpu")
    assert 0.5 < compare_steps(workload, "flat", "flat") < 2.0
    assert compare_steps(workload, "plain", "flat") > 1.0
