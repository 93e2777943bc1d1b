"""Measurements are extrapolated to another batch or device: by a line through two, or by the model from one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paceline import record
from paceline.cost.calibration import Calibration, StepOverheads
from paceline.cost.calibrations import calibration_path
from paceline.cost.extrapolation import extrapolate
from paceline.cost.predicting import predict
from paceline.errors import InputError
from paceline.measurement.measurement import Measurement
from paceline.workload import Workload
from tests.cost.invented import Law, calibration, layer, measurement, slower

ROWS = {"conv1": (1e-5, 2e-6), "fc1": (2e-5, 1e-6)}
"""Seconds per batch and per sample."""


def affine(batch: int, **changes: object) -> Measurement:
    """Layers, parts and memory have a cost per batch and a cost per sample."""
    layers = [layer(name, a + b * batch, 2 * (a + b * batch)) for name, (a, b) in ROWS.items()]
    made = measurement(layers, name="lenet5", batch=batch, parts={"load": 1e-5 + 3e-7 * batch, "loop": 2e-6})
    return replace(made, peak_memory_bytes=10_000_000 + 5_000 * batch, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("batch", [8, 16, 24, 32, 48, 100])
def test_two_batches_are_a_straight_line(batch):
    made, true = extrapolate([affine(16), affine(32)], batch=batch), affine(batch)
    assert made.iteration_s == pytest.approx(true.iteration_s.median_s)
    assert made.parts_s == pytest.approx(true.parts_s)
    assert sum(made.parts_s.values()) == pytest.approx(made.iteration_s)
    for one, other in zip(made.layers, true.layers, strict=True):
        assert one.name == other.name and one.forward_s == pytest.approx(other.forward_s.median_s)
        assert one.backward_s == pytest.approx(other.backward_s.median_s)
        assert one.low_s < one.forward_s + one.backward_s < one.high_s
    assert made.memory_bytes == pytest.approx(true.peak_memory_bytes)
    assert made.low_s < made.iteration_s < made.high_s or batch in (16, 32)


def test_the_line_is_through_the_nearest_two():
    outlier = slower(affine(1024), 5.0)
    assert extrapolate([affine(16), affine(32), outlier], batch=24).iteration_s == pytest.approx(
        affine(24).iteration_s.median_s
    )
    assert "batch 16 and 32" in extrapolate([affine(16), affine(32), outlier], batch=20).basis


def test_uncertainty_grows_with_the_distance():
    near, far = (extrapolate([affine(16), affine(32)], batch=batch) for batch in (40, 640))
    assert far.high_s / far.low_s > near.high_s / near.low_s


def test_a_measured_batch_is_returned_as_measured():
    made, found = extrapolate([affine(16), affine(32)], batch=16), affine(16)
    assert made.basis == "measured" and made.iteration_s == found.iteration_s.median_s
    assert (made.low_s, made.high_s) == (found.iteration_s.p10_s, found.iteration_s.p90_s)
    assert made.parameter_bytes == 4 * sum(row.parameters for row in found.layers)


def test_time_does_not_vanish_at_a_small_batch():
    steep = [affine(16), slower(affine(32), 3.0)]
    assert extrapolate(steep, batch=1).iteration_s > 0


@pytest.fixture
def here() -> Calibration:
    """The calibration of the device that measurements here are of."""
    made = calibration("cpu", Law(fixed_s=1e-7), step_overheads={"flat": StepOverheads()})
    record.save(made, calibration_path(made.device_name))
    return made


def real(here: Calibration, factor: float, batch: int = 16) -> Measurement:
    """lenet5 as the model predicts it, but `factor` times as long."""
    modelled = predict(Workload("lenet5", batch=batch, threads=1), here, step="flat")
    layers = [layer(row.name, row.forward_s, row.backward_s, row.kind) for row in modelled.layers if row.total_s]
    parts = {name: took for name, took in modelled.parts_s.items() if name not in ("forward", "backward")}
    return slower(measurement(layers, name="lenet5", batch=batch, parts=parts), factor)


def test_one_batch_is_scaled_by_the_models_factor(here):
    found = real(here, 3.0)
    made = extrapolate([found], batch=64)
    modelled = predict(Workload("lenet5", batch=64, threads=1), here, step="flat")
    assert made.iteration_s == pytest.approx(3 * modelled.iteration_s, rel=1e-6)
    assert sum(made.parts_s.values()) == pytest.approx(made.iteration_s)
    times = {row.name: row for row in modelled.layers}
    for row in made.layers:
        if row.forward_s > 0:
            assert row.forward_s == pytest.approx(3 * times[row.name].forward_s, rel=1e-6)
            assert row.low_s <= row.forward_s + row.backward_s <= row.high_s
    assert made.low_s < made.iteration_s < made.high_s
    assert made.basis.startswith("measured at batch 16 on an invented cpu")


def test_to_another_device_too(here):
    made = extrapolate([real(here, 2.0)], batch=16, device="H200")
    modelled = predict(Workload("lenet5", batch=16), "H200")
    assert made.device == "H200" and made.step == "graph"
    assert made.iteration_s == pytest.approx(2 * modelled.iteration_s, rel=1e-6)
    assert made.high_s / made.low_s == pytest.approx(modelled.high_s / modelled.low_s, rel=0.01)


def test_to_another_device_of_its_kind_the_step_stays():
    found = replace(affine(16), device="cuda", device_name="NVIDIA H200", step="flat")
    made = extrapolate([found], batch=32, device="A100")
    assert (made.device, made.step) == ("A100 40GB", "flat")


def test_a_measurement_of_another_machine_is_extrapolated_with_its_device():
    """Measured on an H200, extrapolated on a machine without a GPU and without a calibration."""
    found = replace(affine(16), device="cuda", device_name="NVIDIA H200", step="graph")
    made = extrapolate([found], batch=64)
    small, large = (predict(Workload("lenet5", batch=batch), "H200") for batch in (16, 64))
    ratio = made.iteration_s / found.iteration_s.median_s
    assert ratio == pytest.approx(large.iteration_s / small.iteration_s) and made.device == "H200"


@pytest.mark.parametrize(
    ("measurements", "batch", "message"),
    [
        ([], 8, "there is no measurement to extrapolate from"),
        ([affine(16)], 0, "batch=0 should be at least 1"),
        ([affine(16), affine(32, name="other")], 8, "of one network, one kind of step and one device"),
        ([affine(16), affine(32, step="plain")], 8, "of one network, one kind of step and one device"),
        ([affine(16), affine(32, device_name="another")], 8, "of one network, one kind of step and one device"),
        ([affine(16)], 8, "the measurement is of an invented cpu, which has no calibration here: run paceline"),
        ([affine(16, conditions={})], 8, "taken in a custom loop, whose data are not known"),
        (
            [affine(16, step="compiled", device_name="H200", device="cuda")],
            8,
            "has no ratios for compiled steps",
        ),
    ],
)
def test_invalid_extrapolations_are_rejected(measurements, batch, message):
    with pytest.raises(InputError, match=message):
        extrapolate(measurements, batch=batch)
