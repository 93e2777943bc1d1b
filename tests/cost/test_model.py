"""From operations to seconds: in order, with the right trials, and with more uncertainty where none exist."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paceline.cost.calibration import TrialSet
from paceline.cost.curve import Trial
from paceline.cost.model import DEFAULT_HOST_S, UNKNOWN_LOG_SD, UNTRIED_LOG_SD, CostModel, fitted_shapes, model_for
from paceline.cost.operation import Operation
from paceline.cost.workload_tracing import DataShape, trace_workload
from paceline.errors import InputError
from paceline.workload import Workload, resolve
from tests.cost.invented import Law, calibration

LAW = Law()
DIGITS = DataShape("image", (1, 8, 8), 10, 1437)


def operation(family: str, *sizes: int, known: bool = True) -> Operation:
    return Operation(family, sizes, "row", "forward", family, known)


def test_each_operation_gets_its_own_time_in_the_order_given():
    asked = [
        operation("add", 1 << 20), operation("matmul", 1, 64, 64, 64, 0, 1), operation("add", 1 << 10),
        operation("matmul", 1, 256, 256, 256, 0, 1), operation("softmax", 64, 100),
    ]  # fmt: skip
    costed = CostModel(calibration(law=LAW), threads=1).cost(asked)
    assert [each.operation for each in costed] == asked
    for each in costed:
        assert each.seconds == pytest.approx(LAW.seconds(each.operation.family, each.operation.sizes), rel=0.1)
        assert each.deviation < 0.2


def test_an_operation_of_no_family_has_higher_uncertainty():
    known, unknown = CostModel(calibration()).cost([operation("add", 5000), operation("add", 5000, known=False)])
    assert unknown.seconds == known.seconds and unknown.deviation >= UNKNOWN_LOG_SD > known.deviation


def test_an_uncalibrated_family_uses_peak_rates():
    (found,) = CostModel(calibration(law=LAW)).cost([operation("attention", 64, 128, 128, 64, 1)])
    flops, elements = found.operation.flops, found.operation.elements
    assert found.seconds == max(flops / LAW.flops, 4 * elements / LAW.bytes)
    assert found.deviation == UNTRIED_LOG_SD


@pytest.mark.parametrize(("threads", "expected"), [(1, 1), (2, 2), (64, 2), (0, 2)])
def test_the_set_with_the_nearest_number_of_threads(threads, expected):
    assert CostModel(calibration(), threads=threads).set.threads == expected


def test_a_precision_that_was_not_calibrated():
    with pytest.raises(
        InputError, match=r"was calibrated for float32, not for tf32: run `paceline.calibrate\(precision='tf32'\)`"
    ):
        CostModel(calibration("cuda"), "tf32")


@pytest.mark.parametrize(("batch", "asked", "expected"), [(2, 0, 1), (4096, 0, 2), (2, 2, 2), (4096, 1, 1)])
def test_a_cpu_uses_the_threads_a_run_would(batch, asked, expected):
    workload = resolve("lenet5", {"batch": batch, "threads": asked})
    model = model_for(calibration(), workload, trace_workload(workload, DIGITS))
    assert model.set.threads == expected


def test_a_gpu_has_no_threads():
    workload = Workload("mlp", batch=8)
    assert model_for(calibration("cuda"), workload, trace_workload(workload, DIGITS)).set.threads == 0


def test_curves_of_a_calibration_are_fitted_once(monkeypatch):
    import paceline.cost.calibration as room

    made = calibration()
    first = CostModel(made, threads=1).cost([operation("add", 1000)])
    monkeypatch.setattr(room, "Curve", lambda *arguments: pytest.fail("fitted again"))
    assert CostModel(made, threads=1).cost([operation("add", 1000)]) == first


def test_shapes_cover_all_families():
    made = calibration(count=8)
    shapes = fitted_shapes(made.sets[0])
    assert set(shapes) == {trial.family for trial in made.sets[0].trials} and all(shapes.values())
    again = replace(made, sets=(replace(made.sets[0], shapes=shapes),))
    asked = [operation("add", 1234), operation("softmax", 10, 20)]
    for a, b in zip(CostModel(made, threads=1).cost(asked), CostModel(again, threads=1).cost(asked), strict=True):
        assert a.seconds == pytest.approx(b.seconds)


def test_a_roofline_is_at_the_peak_of_the_precision_and_with_its_bytes():
    slow, fast = Law(), Law(fixed_s=0, flops=1e13)
    single = calibration("cuda", slow, count=6)
    half = TrialSet("bfloat16", 0, tuple(fast.trials("matmul", "matmul", 40)))
    both = replace(single, sets=(*single.sets, half))
    product, sum_ = operation("matmul", 1, 2048, 2048, 2048, 0, 0), operation("add", 1 << 20)
    halves = [replace(each, dtype="bfloat16") for each in (product, sum_)]
    model = CostModel(both, "bfloat16")
    assert model.roofline_s([product]) > 10 * model.roofline_s(halves[:1])
    assert CostModel(both).roofline_s([product]) == pytest.approx(product.flops / slow.flops)
    assert model.roofline_s([sum_]) == pytest.approx(2 * model.roofline_s(halves[1:]))


def test_mixed_precision_estimates_each_operation_from_trials_of_its_type():
    slow, fast = Law(fixed_s=1e-4), Law(fixed_s=1e-6)
    single, half = calibration("cuda", slow, count=8), calibration("cuda", fast, count=8, sets=[("bfloat16", 0)])
    model = CostModel(replace(single, sets=(*single.sets, *half.sets)), "bfloat16")
    tiny = operation("add", 64)
    in_float32, in_half = model.cost([tiny, replace(tiny, dtype="bfloat16")])
    assert in_float32.seconds == pytest.approx(1e-4, rel=0.1) and in_half.seconds == pytest.approx(1e-6, rel=0.1)


def test_images_with_the_channels_last_have_trials_of_their_own():
    plain, last = (calibration("cuda", Law(fixed_s=fixed_s), count=8) for fixed_s in (1e-4, 1e-6))
    images = replace(last.sets[0], memory_format="channels_last")
    model = CostModel(replace(plain, sets=(*plain.sets, images)))
    small = operation("convolution", 1, 8, 8, 8, 8, 1, 1, 8, 8, 1, 0)
    as_usual, channels_last = model.cost([small, replace(small, channels_last=True)])
    assert as_usual.seconds > 20 * channels_last.seconds


@pytest.mark.parametrize(("threads", "expected"), [(1, 1e-6), (2, 1e-4), (0, 1e-4)])
def test_images_with_the_channels_last_have_the_nearest_number_of_threads(threads, expected):
    plain, last = calibration(count=8), (calibration(law=Law(fixed_s=s), count=8) for s in (1e-6, 1e-4))
    images = [
        replace(next(s for s in made.sets if s.threads == n), memory_format="channels_last")
        for n, made in zip((1, 2), last, strict=True)
    ]
    model = CostModel(replace(plain, sets=(*plain.sets, *images)), threads=threads)
    small = replace(operation("convolution", 1, 8, 8, 8, 8, 1, 1, 8, 8, 1, 0), channels_last=True)
    assert model.cost([small])[0].seconds == pytest.approx(expected, rel=0.3)


def test_the_host_s_time_of_a_family_is_the_median_of_its_trials():
    made = calibration("cuda", count=3)
    timed = tuple(replace(t, host_s=3e-6 if t.family == "add" else 0.0) for t in made.sets[0].trials)
    model = CostModel(replace(made, sets=(replace(made.sets[0], trials=timed),)))
    assert model.host_s(operation("add", 100)) == 3e-6
    assert model.host_s(operation("matmul", 1, 8, 8, 8, 0, 0)) == DEFAULT_HOST_S


def test_the_host_s_time_of_a_recurrent_layer_is_that_of_its_nearest_sizes():
    made = calibration("cuda", count=3)
    sizes = [(2**n, 32, 64, 64) for n in range(10) for _ in range(5)]
    timed = tuple(Trial("recurrent", each, 1e-3, host_s=1e-5 * each[0]) for each in sizes)
    model = CostModel(replace(made, sets=(replace(made.sets[0], trials=timed),)))
    for steps in (4, 256):
        assert model.host_s(operation("recurrent", steps, 32, 64, 64)) == pytest.approx(1e-5 * steps)
