"""From operations to seconds: in order, with the right trials, and with more uncertainty where none exist."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paceline.cost.calibration import TrialSet
from paceline.cost.model import UNKNOWN_LOG_SD, UNTRIED_LOG_SD, CostModel, model_for
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
    (found,) = CostModel(calibration(law=LAW)).cost([operation("attention", 64, 128, 128, 64)])
    flops, elements = found.operation.flops, found.operation.elements
    assert found.seconds == max(flops / LAW.flops, 4 * elements / LAW.bytes)
    assert found.deviation == UNTRIED_LOG_SD


@pytest.mark.parametrize(("threads", "expected"), [(1, 1), (2, 2), (64, 2), (0, 2)])
def test_the_set_with_the_nearest_number_of_threads(threads, expected):
    assert CostModel(calibration(), threads=threads).set.threads == expected


def test_a_precision_that_was_not_calibrated():
    with pytest.raises(InputError, match="was calibrated for float32, not for tf32: run paceline calibrate"):
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
    import paceline.cost.model as room

    made = calibration()
    first = CostModel(made, threads=1).cost([operation("add", 1000)])
    monkeypatch.setattr(room, "Curve", lambda *arguments: pytest.fail("fitted again"))
    assert CostModel(made, threads=1).cost([operation("add", 1000)]) == first


def test_shapes_cover_all_families():
    made = calibration(count=8)
    shapes = CostModel(made, threads=1).shapes()
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
    rates = [CostModel(both, precision).roofline_s([product]) for precision in ("float32", "bfloat16")]
    assert rates[0] == pytest.approx(product.flops / slow.flops) and rates[1] < 0.1 * rates[0]
    sums = [CostModel(both, precision).roofline_s([sum_]) for precision in ("float32", "bfloat16")]
    assert sums[0] == pytest.approx(2 * sums[1])
