"""Step overheads are recovered from synthetic measurements."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paceline.cost.model import Costed
from paceline.cost.operation import Operation
from paceline.cost.step_overheads import MIN_NETWORKS, RARE_SPREAD, ReferenceRun, fit_overheads
from paceline.measurement.mark_log import SCORE
from tests.cost.invented import layer, measurement

FORWARD_S, BACKWARD_S = 7e-6, 11e-6
FACTORS = {"matmul": 1.5, "convolution": 0.8}


def costed(row: str, direction: str, family: str, seconds: float) -> Costed:
    sizes = (1, 8, 8, 8, 0, 1) if family == "matmul" else (1, 3, 8, 8, 4, 3, 3, 8, 8, 1, 1)
    sizes = sizes if family in FACTORS else (100,)
    return Costed(Operation(family, sizes, row, direction, family), seconds, 0.1)


def network(number: int, *, batch: int = 10, parts: dict[str, float] | None = None) -> ReferenceRun:
    """A product, a convolution and a tiny activation, with known step overheads."""
    alone = {"product": ("matmul", 1e-3 * number), "convolution": ("convolution", 2e-3 * number), "small": ("relu", 0)}
    layers, operations = [], []
    for row, (family, seconds) in alone.items():
        factor = FACTORS.get(family, 1.0)
        layers.append(layer(row, factor * seconds + FORWARD_S, 2 * factor * seconds + BACKWARD_S))
        operations.append(costed(row, "forward", family, seconds or 1e-9))
        operations.append(costed(row, "backward", family, 2 * seconds or 1e-9))
    found = measurement(layers, name=f"network {number}", batch=batch, parts=parts, data="synthetic:100/10")
    return ReferenceRun(found, operations)


def test_factors_and_overheads_are_recovered():
    step_overheads = fit_overheads([network(number) for number in range(1, 9)], on_gpu=False)
    assert step_overheads.forward_s == pytest.approx(FORWARD_S, rel=0.02)
    assert step_overheads.backward_s == pytest.approx(BACKWARD_S, rel=0.02)
    for family, factor in FACTORS.items():
        # Eight networks are believed to nine tenths: 1.5 becomes 1.5 ** 0.85.
        assert step_overheads.factors[family] == pytest.approx(factor ** (7.3 / 8.6), rel=0.02)
        assert 0.05 <= step_overheads.spreads[family] < RARE_SPREAD
    assert step_overheads.networks[0] == "network 1 at 10" and len(step_overheads.networks) == 8


def test_few_networks_are_shrunk_and_have_a_wider_spread():
    many, few = fit_overheads([network(n) for n in range(1, 9)], False), fit_overheads([network(1)], False)
    assert 1.0 < few.factors["matmul"] < many.factors["matmul"] < FACTORS["matmul"]
    assert MIN_NETWORKS > 1 and few.spreads["matmul"] >= RARE_SPREAD > many.spreads["matmul"]


def test_one_network_counts_once_however_many_batches_it_has():
    medians = [network(number) for number in range(1, 6)]
    odd = replace(network(9), costed=[replace(c, seconds=c.seconds / 3) for c in network(9).costed])
    once, often = fit_overheads([*medians, odd], False), fit_overheads([*medians, *(odd for _ in range(20))], False)
    assert often.factors == pytest.approx(once.factors)


def test_a_slow_update_is_fitted():
    seen = [replace(network(n, parts={"update": 3e-3 * n}), update_s=2e-3 * n) for n in range(1, 9)]
    assert fit_overheads(seen, on_gpu=False).update_factor == pytest.approx(1.5 ** (7.3 / 8.6))
    assert fit_overheads([network(1)], on_gpu=False).update_factor == 1.0  # nothing was said of updates


def test_loading_has_a_cost_per_batch_and_per_element():
    seen = [
        network(n, batch=batch, parts={"load": 30e-6 + batch * 100 * 2e-9, "loop": 5e-6})
        for n, batch in ((1, 8), (2, 64), (3, 500))
    ]
    step_overheads = fit_overheads(seen, on_gpu=False)
    assert step_overheads.load_s == pytest.approx(30e-6, rel=0.01)
    assert step_overheads.load_element_s == pytest.approx(2e-9, rel=0.01)
    assert step_overheads.loop_s == 5e-6


def test_a_custom_loop_says_nothing_about_loading():
    found = network(1, parts={"load": 1e-4})
    conditions = {key: value for key, value in found.measurement.conditions.items() if key != "data"}
    step_overheads = fit_overheads(
        [replace(found, measurement=replace(found.measurement, conditions=conditions))], on_gpu=False
    )
    assert (step_overheads.load_s, step_overheads.load_element_s) == (0.0, 0.0)


def test_on_a_gpu_gaps_are_shared_by_operations_and_launches_come_from_idle_networks():
    idle, busy = network(1, parts={"idle": 60e-3}), network(5, parts={"idle": 60e-6})
    step_overheads = fit_overheads([idle, busy], on_gpu=True)
    assert (step_overheads.forward_s, step_overheads.backward_s) == (0.0, 0.0)
    assert step_overheads.launch_s == pytest.approx(idle.measurement.iteration_s.median_s / len(idle.costed))
    assert step_overheads.gap_s == pytest.approx((60e-3 + 60e-6) / 2 / len(idle.costed))
    assert fit_overheads([busy], on_gpu=True).launch_s == 0.0


def test_loss_and_accuracy_metrics_belong_to_no_layer():
    found = network(1)
    with_score = replace(found.measurement, layers=(*found.measurement.layers, layer(SCORE, 3e-6, 0.0)))
    assert fit_overheads([replace(found, measurement=with_score)], on_gpu=False).score_s == 3e-6


def test_without_measurements_there_are_no_overheads():
    step_overheads = fit_overheads([], on_gpu=False)
    assert (
        step_overheads.factors == {}
        and step_overheads.forward_s == step_overheads.load_s == step_overheads.loop_s == 0.0
    )
