"""Step overheads are recovered from synthetic measurements."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from paceline.cost.caches import Costed
from paceline.cost.host_fit import FEW_LOG_SD
from paceline.cost.model import DEFAULT_HOST_S, CostModel
from paceline.cost.op_tracing import NetworkShape
from paceline.cost.operation import Operation
from paceline.cost.reference_run import ReferenceRun
from paceline.cost.step_overheads import LEAST_CALL_SPREAD, MIN_NETWORKS, RARE_SPREAD, fit_overheads
from paceline.cost.workload_tracing import DataShape
from paceline.measurement.mark_log import SCORE
from paceline.measurement.network_times import NetworkTimes, times_of
from tests.cost.invented import calibration, layer, measurement, read

FORWARD_S, BACKWARD_S = 7e-6, 11e-6
FACTORS = {"matmul": 1.5, "convolution": 0.8}
CALIBRATED, DATA = calibration("cuda", count=2), DataShape("table", (100,), 10, 1000)


def costed(row: str, direction: str, family: str, seconds: float) -> Costed:
    sizes = (1, 8, 8, 8, 0, 1) if family == "matmul" else (1, 3, 8, 8, 4, 3, 3, 8, 8, 1, 1)
    sizes = sizes if family in FACTORS else (100,)
    return Costed(Operation(family, sizes, row, direction, family), seconds, 0.1)


def network(
    number: int, *, batch: int = 10, parts: dict[str, float] | None = None, update_s: float = 0.0,
    step: str = "flat", host_s: float = 0.0, iteration_s: float | None = None,
) -> ReferenceRun:  # fmt: skip
    """A product, a convolution and a tiny activation, with known step overheads."""
    alone = {"product": ("matmul", 1e-3 * number), "convolution": ("convolution", 2e-3 * number), "small": ("relu", 0)}
    layers, operations = {}, []
    for row, (family, seconds) in alone.items():
        factor = FACTORS.get(family, 1.0)
        layers[row] = factor * seconds + FORWARD_S, 2 * factor * seconds + BACKWARD_S
        operations.append(costed(row, "forward", family, seconds or 1e-9))
        operations.append(costed(row, "backward", family, 2 * seconds or 1e-9))
    whole = sum(map(sum, layers.values())) + sum((parts or {}).values())
    times = NetworkTimes(
        f"network {number}", batch, step, "float32", "synthetic:100/10", "sgd",
        whole if iteration_s is None else iteration_s, layers, parts or {}, host_s=host_s,
    )  # fmt: skip
    shape = read(nn.Linear(4, 2), torch.empty(3, 4))
    return ReferenceRun(times, operations, update_s, CostModel(CALIBRATED), shape, DATA, chain=False)


def test_factors_and_overheads_are_recovered():
    step_overheads = fit_overheads([network(number) for number in range(1, 9)], on_gpu=False)
    assert step_overheads.forward_s == pytest.approx(FORWARD_S, rel=0.02)
    assert step_overheads.backward_s == pytest.approx(BACKWARD_S, rel=0.02)
    for family, factor in FACTORS.items():
        # Eight networks are believed to nine tenths: 1.5 becomes 1.5 ** 0.85.
        assert step_overheads.factors[family] == pytest.approx(factor ** (7.3 / 8.6), rel=0.02)
        assert 0.05 <= step_overheads.spreads[family] < RARE_SPREAD
    assert step_overheads.networks[0] == "network 1 at 10" and len(step_overheads.networks) == 8


def test_the_drift_of_the_machine_is_divided_out():
    usual = [network(number) for number in range(1, 9)]
    drifted = []
    for made in usual:
        slower = {row: (2 * f, 2 * b) if row == "product" else (f, b) for row, (f, b) in made.times.layers.items()}
        drifted.append(replace(made, times=replace(made.times, layers=slower, drift={"product": 2.0})))
    first, then = (fit_overheads(runs, on_gpu=False).factors for runs in (usual, drifted))
    assert then["matmul"] == pytest.approx(first["matmul"], rel=0.02) and then["convolution"] == first["convolution"]


def test_how_much_calls_differ_between_layers_is_found():
    alike = [network(number) for number in range(1, 10)]
    scattered = []
    for number, made in enumerate(alike):
        times = 1.0 + 0.6 * (number - 4) / 4  # evenly between 0.4 and 1.6: half are within 0.3 of 1
        layers = {**made.times.layers, "small": (times * FORWARD_S, times * BACKWARD_S)}
        scattered.append(replace(made, times=replace(made.times, layers=layers)))
    assert fit_overheads(alike, on_gpu=False).call_spread == LEAST_CALL_SPREAD
    assert fit_overheads(scattered, on_gpu=False).call_spread == pytest.approx(0.3 * 1.4826, rel=0.1)
    assert fit_overheads(scattered, on_gpu=True).call_spread == 0.0


def test_few_networks_are_shrunk_and_have_a_wider_spread():
    many, few = fit_overheads([network(n) for n in range(1, 9)], False), fit_overheads([network(1)], False)
    assert 1.0 < few.factors["matmul"] < many.factors["matmul"] < FACTORS["matmul"]
    assert MIN_NETWORKS > 1 and few.spreads["matmul"] >= RARE_SPREAD > many.spreads["matmul"]


def test_one_network_counts_once_however_many_batches_it_has():
    medians = [network(number) for number in range(1, 6)]
    odd = replace(network(9), timed=[replace(c, seconds=c.seconds / 3) for c in network(9).costed])
    once, often = fit_overheads([*medians, odd], False), fit_overheads([*medians, *(odd for _ in range(20))], False)
    assert often.factors == pytest.approx(once.factors)


def updated(number: int, chain: bool = False) -> ReferenceRun:
    """A network whose update takes 1e-4 s, 1e-5 s for each of its tensors, and 1.5 times its passes alone."""
    tensors = 2 + number**2
    made = network(
        number, parts={"update": 1e-4 + 1e-5 * tensors * (not chain) + 3e-3 * number}, update_s=2e-3 * number
    )
    return replace(made, chain=chain, shape=with_tensors(made.shape, tensors))


def with_tensors(shape: NetworkShape, tensors: int) -> NetworkShape:
    (phase,) = shape.phases
    return replace(shape, phases=(replace(phase, parameter_shapes=((2,),) * tensors),))


def test_an_update_is_a_start_a_time_per_tensor_and_a_multiple_of_its_passes_alone():
    found = fit_overheads([updated(n) for n in range(1, 9)], on_gpu=True)
    assert found.update_factor == pytest.approx(1.5, rel=1e-3)
    assert found.update_s == pytest.approx(1e-4, rel=1e-2) and found.update_tensor_s == pytest.approx(1e-5, rel=1e-2)
    assert fit_overheads([updated(n) for n in range(1, 9)], on_gpu=False).update_s == pytest.approx(1e-4, rel=1e-2)


def test_gradients_of_a_chain_are_where_the_update_reads_them():
    seen = [updated(n, chain=n % 2 == 0) for n in range(1, 13)]
    assert fit_overheads(seen, on_gpu=True).update_tensor_s == pytest.approx(1e-5, rel=1e-2)


def test_a_single_network_cannot_tell_the_times_of_an_update_apart_but_others_of_its_step_can():
    seen = [updated(n) for n in range(1, 9)]
    one = fit_overheads(seen[:1], on_gpu=True)
    assert (one.update_factor, one.update_s, one.update_tensor_s) == (1.0, 0.0, 0.0)
    assert fit_overheads(seen[:1], True, seen).update_factor == pytest.approx(1.5, rel=1e-3)


def test_loading_has_a_cost_per_batch_and_per_element():
    seen = [
        network(n, batch=batch, parts={"load": 30e-6 + batch * 100 * 2e-9, "loop": 5e-6})
        for n, batch in ((1, 8), (2, 64), (3, 500))
    ]
    step_overheads = fit_overheads(seen, on_gpu=False)
    assert step_overheads.load_s == pytest.approx(30e-6, rel=0.01)
    assert step_overheads.load_element_s == pytest.approx(2e-9, rel=0.01)
    assert step_overheads.loop_s == 5e-6


def test_on_a_gpu_gaps_come_from_iterations_in_which_the_host_is_ahead():
    def captured(number: int, idle_s: float, **times: float) -> ReferenceRun:
        busy = network(number)
        return network(number, step="graph", iteration_s=busy.busy_s + idle_s, **times)

    found = fit_overheads([captured(n, 6 * 3e-6) for n in range(1, 5)], on_gpu=True)
    assert (found.forward_s, found.backward_s) == (0.0, 0.0)
    assert 6 * found.gap_s + found.loop_s == pytest.approx(6 * 3e-6)
    behind = captured(1, 1.0, host_s=1.0)
    assert fit_overheads([behind], on_gpu=True).gap_s == 0.0


def launched(number: int, slower: float = 1.0) -> ReferenceRun:
    """A network of `number` times the operations and views, whose device waits for the host."""
    made = network(1, step="plain")
    costed = [each for each in made.costed for _ in range(number)]
    views, tensors = 7 * number**2, 3 * number**3
    shape = with_tensors(replace(made.shape, views=views), tensors)
    host_s = slower * (2.0 * DEFAULT_HOST_S * len(costed) + 4e-6 * views + 1e-6 * tensors + 1e-3)
    times = replace(made.times, name=f"network {number}", host_s=host_s, iteration_s=host_s)
    return replace(made, timed=costed, shape=shape, times=times)


def test_launching_costs_a_multiple_of_calling_alone_and_times_per_view_parameter_and_iteration():
    sizes = (1, 2, 3, 5, 8, 13, 21, 34)
    # One network was measured in a slow moment.
    found = fit_overheads([launched(n, slower=3.0 if n == 5 else 1.0) for n in sizes], on_gpu=True)
    assert found.host_factor == pytest.approx(2.0, rel=0.1) and found.host_s == pytest.approx(1e-3, rel=0.1)
    assert found.host_view_s == pytest.approx(4e-6, rel=0.1)
    assert found.host_parameter_s == pytest.approx(1e-6, rel=0.1)
    few = fit_overheads([launched(3)], on_gpu=True)
    assert few.host_factor > 2.0 and few.host_view_s == 0.0 and few.host_log_sd >= FEW_LOG_SD


def test_the_middle_one_of_a_network_s_runs_counts():
    runs = [launched(n, slower) for n in (1, 2, 3, 5, 8, 13) for slower in (1.0, 1.0, 2.0)]
    assert fit_overheads(runs, on_gpu=True).host_factor == pytest.approx(2.0, rel=0.02)


def test_products_on_a_gpu_have_factors_as_on_a_cpu():
    found = fit_overheads([network(number) for number in range(1, 9)], on_gpu=True)
    assert found.factors["matmul"] > 1.2 and found.factors["convolution"] < 0.95


def test_loss_and_accuracy_metrics_belong_to_no_layer():
    found = network(1)
    assert fit_overheads([replace(found, times=replace(found.times, score_s=3e-6))], on_gpu=False).score_s == 3e-6
    measured = measurement([layer("product", 1e-3, 2e-3), layer(SCORE, 3e-6, 0.0)])
    times = times_of(measured)
    assert times.score_s == 3e-6 and times.layers == {"product": (1e-3, 2e-3)} and times.data == "digits"


def test_without_measurements_there_are_no_overheads():
    step_overheads = fit_overheads([], on_gpu=False)
    assert (
        step_overheads.factors == {}
        and step_overheads.forward_s == step_overheads.load_s == step_overheads.loop_s == 0.0
    )
