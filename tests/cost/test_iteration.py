"""Composing an iteration: parts add up, the interval contains the estimate, a GPU waits for its host or not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from paceline.cost.caches import WITHOUT_CODE
from paceline.cost.calibration import StepOverheads
from paceline.cost.iteration import Iteration, compose_iteration, update_alone_s
from paceline.cost.model import DEFAULT_HOST_S, CostModel
from paceline.cost.op_tracing import NetworkShape
from paceline.cost.workload_tracing import DataShape, trace_workload
from paceline.measurement.mark_log import OUTSIDE, SCORE
from paceline.step.optimizers import Rule
from paceline.workload import OPTIMIZERS, resolve
from tests.cost.invented import Law, calibration

DIGITS = DataShape("image", (1, 8, 8), 10, 1437)
LAW = Law()


@pytest.fixture(scope="module")
def shape() -> NetworkShape:
    return trace_workload(resolve("lenet5", {"batch": 8}), DIGITS)


CPU, GPU = CostModel(calibration("cpu", LAW), threads=1), CostModel(calibration("cuda", LAW))


def put(
    shape: NetworkShape, step_overheads: StepOverheads = StepOverheads(), *, on_gpu: bool = False, **changes: object
) -> Iteration:
    model = GPU if on_gpu else CPU
    given: Mapping[str, object] = {"step": "graph" if on_gpu else "flat", "update_s": 2e-6, "sample_elements": 512}
    return compose_iteration(
        model, step_overheads, shape, model.cost(shape.operations), on_gpu=on_gpu, **{**given, **changes}
    )  # type: ignore[arg-type]


@pytest.mark.parametrize("on_gpu", [False, True])
def test_parts_add_up_and_so_do_layers(shape, on_gpu):
    step_overheads = StepOverheads(forward_s=1e-6, backward_s=2e-6, gap_s=1e-6, load_s=3e-6, score_s=4e-6, loop_s=5e-6)
    made = put(shape, step_overheads, on_gpu=on_gpu)
    assert sum(made.parts_s.values()) == pytest.approx(made.seconds)
    assert made.low_s < made.seconds < made.high_s
    for part in ("forward", "backward", "update"):
        assert sum(getattr(layer, f"{part}_s") for layer in made.layers) == pytest.approx(made.parts_s[part])
    for layer in made.layers:
        assert layer.low_s <= layer.forward_s + layer.backward_s <= layer.high_s
    assert sum(layer.flops for layer in made.layers) == pytest.approx(shape.flops)


def test_calls_that_differ_between_layers_widen_the_intervals_of_layers(shape):
    alike, different = (
        {layer.name: layer for layer in put(shape, StepOverheads(forward_s=1e-3, call_spread=spread)).layers}
        for spread in (0.0, 0.4)
    )
    for name, layer in different.items():
        if shape.rows[name].calls if name in shape.rows else 0:
            assert layer.forward_s == alike[name].forward_s
            assert layer.low_s < alike[name].low_s / 1.5 and layer.high_s > alike[name].high_s * 1.5


def test_the_step_adds_overhead_to_each_call_of_a_layer(shape):
    plain, dearer = put(shape), put(shape, StepOverheads(forward_s=1e-3))
    alone = sum(LAW.seconds(o.family, o.sizes) for o in shape.operations if o.direction == "forward")
    assert plain.parts_s["forward"] == pytest.approx(alone, rel=0.1)
    count = sum(row.calls for row in shape.rows.values())
    assert dearer.parts_s["forward"] - plain.parts_s["forward"] == pytest.approx(count * 1e-3)
    assert dearer.parts_s["backward"] == plain.parts_s["backward"]
    nodes = sum(row.backward_nodes for row in shape.rows.values())
    slow_backward = put(shape, StepOverheads(backward_s=1e-3))
    assert slow_backward.parts_s["backward"] - plain.parts_s["backward"] == pytest.approx(nodes * 1e-3)
    captured = put(shape, StepOverheads(forward_s=1e-3, backward_s=1e-3, network_s=1.0), on_gpu=True)
    assert captured.parts_s == put(shape, on_gpu=True).parts_s  # Python calls nothing there


def test_a_network_a_loss_and_a_backward_pass_are_called_once(shape):
    plain, found = put(shape), put(shape, StepOverheads(network_s=1.0, loss_s=2.0, loss_backward_s=4.0))
    more = {
        (layer.name, part): round(getattr(layer, part) - getattr(before, part), 6)
        for layer in found.layers
        for before in plain.layers
        if layer.name == before.name
        for part in ("forward_s", "backward_s")
    }
    changed = {place: seconds for place, seconds in more.items() if seconds}
    whole = next(iter(shape.rows))
    assert changed == {(whole, "forward_s"): 1.0, (OUTSIDE, "forward_s"): 2.0, (OUTSIDE, "backward_s"): 4.0}


def test_calls_are_slower_where_the_caches_have_lost_their_code(shape):
    """The same operations, each of which writes more."""
    overheads = StepOverheads(forward_s=1e-6, loop_s=1e-6, score_s=1e-6)
    model = CostModel(replace(calibration("cpu", LAW), cache_bytes=1e6), threads=1)

    def parts(written_bytes: int) -> dict[str, float]:
        operations = tuple(replace(each, written_bytes=written_bytes) for each in shape.operations)
        made = replace(shape, operations=operations)
        return compose_iteration(
            model, overheads, made, model.cost(operations), step="flat", update_s=0.0, sample_elements=0, on_gpu=False
        ).parts_s

    none, some, all_lost = (parts(written) for written in (0, 300_000, 10**15))
    assert none["loop"] == 1e-6 < some["loop"] < all_lost["loop"] == pytest.approx((1 + WITHOUT_CODE) * 1e-6)
    assert none["forward"] < some["forward"] < all_lost["forward"]


def test_a_family_s_factor_and_spread(shape):
    plain, doubled = put(shape), put(shape, StepOverheads(factors={"convolution": 2.0}))
    own = sum(c.seconds for c in CPU.cost(shape.operations) if c.operation.family == "convolution")
    assert doubled.seconds - plain.seconds == pytest.approx(own)
    unsure = put(shape, StepOverheads(spreads={"convolution": 1.0, "convolution_backward": 1.0}))
    assert unsure.seconds == plain.seconds and unsure.high_s > plain.high_s and unsure.low_s < plain.low_s


def test_an_uncalibrated_operation_widens_the_interval(shape):
    largest = max(range(len(shape.operations)), key=lambda n: CPU.cost(shape.operations)[n].seconds)
    operations = list(shape.operations)
    operations[largest] = replace(operations[largest], known=False)
    known, unknown = put(shape), put(replace(shape, operations=tuple(operations)))
    assert unknown.seconds == known.seconds
    assert unknown.high_s > known.high_s and unknown.low_s < known.low_s


def test_a_slower_machine_and_a_less_certain_one(shape):
    medians, unsure = put(shape), put(shape, extra_log_sd=0.3)
    slow = put(shape, drift=dict.fromkeys(("product", "convolution", "elementwise"), 2.0))
    assert slow.seconds == pytest.approx(2 * medians.seconds) and slow.high_s == pytest.approx(2 * medians.high_s)
    assert unsure.seconds == medians.seconds
    assert unsure.high_s / unsure.low_s > 1.2 * medians.high_s / medians.low_s


def test_drift_of_convolutions_affects_only_convolutions(shape):
    medians, slow = put(shape), put(shape, drift={"convolution": 3.0})
    own = sum(c.seconds for c in CPU.cost(shape.operations) if c.operation.family.startswith("convolution"))
    assert own > 0 and slow.seconds - medians.seconds == pytest.approx(2 * own)


def test_updates_scale_with_the_update_factor(shape):
    medians, slow = put(shape), put(shape, StepOverheads(update_factor=1.5))
    assert slow.parts_s["update"] == pytest.approx(1.5 * medians.parts_s["update"])


def test_a_captured_step_waits_between_operations(shape):
    made = put(shape, StepOverheads(gap_s=2e-6, host_s=1.0), on_gpu=True)
    assert made.parts_s["idle"] == pytest.approx(2e-6 * len(shape.operations))


def test_a_step_that_is_not_captured_waits_for_the_host_only_where_that_is_slower(shape):
    count = len(shape.operations)
    alone = put(shape, on_gpu=True, step="flat")
    busy = sum(p for name, p in alone.parts_s.items() if name != "idle")
    slow_host = put(shape, StepOverheads(host_s=10 * busy), on_gpu=True, step="flat")
    assert slow_host.seconds == pytest.approx(10 * busy)
    per_parameter = put(shape, StepOverheads(host_parameter_s=busy), on_gpu=True, step="flat")
    assert per_parameter.seconds == pytest.approx(busy * shape.parameter_tensors)
    launching = put(shape, StepOverheads(host_factor=1e4), on_gpu=True, step="flat")
    assert launching.seconds == pytest.approx(1e4 * DEFAULT_HOST_S * count, rel=1e-3)
    views = put(shape, StepOverheads(host_view_s=busy), on_gpu=True, step="flat")
    assert views.seconds == pytest.approx(busy * shape.views, rel=1e-3) and shape.views > 2
    fast_host = put(shape, StepOverheads(host_s=0.1 * busy, gap_s=1e-9), on_gpu=True, step="flat")
    assert fast_host.parts_s["idle"] == pytest.approx(1e-9 * count)


def test_the_interval_is_as_wide_as_networks_left_out_were_off(shape):
    narrow, wide = (put(shape, StepOverheads(iteration_log_sd=sd), on_gpu=True) for sd in (0.05, 0.4))
    assert wide.high_s / wide.low_s > 1.9 * narrow.high_s / narrow.low_s


def test_loading_counts_on_a_cpu_and_is_hidden_on_a_gpu(shape):
    step_overheads = StepOverheads(load_s=1e-5, load_element_s=1e-9)
    assert put(shape, step_overheads).parts_s["load"] == pytest.approx(1e-5 + 512e-9)
    assert put(shape, step_overheads, on_gpu=True).parts_s["load"] == 0.0
    copied = put(shape, StepOverheads(load_s=1e-5)).parts_s["load"] - 1e-5  # an older calibration, which does not say
    assert copied == pytest.approx(LAW.seconds("copy", (512,)), rel=0.2)


def test_loss_and_accuracy_are_a_row(shape):
    made = put(shape, StepOverheads(score_s=7e-6))
    assert [layer.forward_s for layer in made.layers if layer.name == SCORE] == [7e-6]
    assert not [layer for layer in put(shape).layers if layer.name == SCORE]


def with_optimizer(shape: NetworkShape, name: str) -> NetworkShape:
    (phase,) = shape.phases
    return replace(shape, phases=(replace(phase, rule=Rule(name, 0.1)),))


@pytest.mark.parametrize("step", ["plain", "flat"])
def test_updates_of_all_optimizers_grow_with_their_work(shape, step):
    took = {name: update_alone_s(GPU, with_optimizer(shape, name), step, True) for name in OPTIMIZERS}
    assert 0 < took["sgd"] < took["momentum"] < took["adam"] < took["nadam"]
    assert took["sgd"] == pytest.approx(GPU.seconds("add_", (shape.parameter_bytes // 4,)))


def test_the_update_belongs_to_the_layers_with_parameters(shape):
    made = put(shape, StepOverheads(update_factor=3.0), update_s=1e-5)
    assert made.parts_s["update"] == pytest.approx(3e-5)
    largest = max(made.layers, key=lambda layer: layer.update_s)
    assert largest.name == max(shape.rows, key=lambda name: shape.rows[name].parameters)


def test_an_update_has_a_start_and_a_time_per_tensor(shape):
    overheads = StepOverheads(update_s=1e-4, update_tensor_s=1e-5, update_factor=2.0)
    apart = 1e-4 + 1e-5 * shape.parameter_tensors
    small, large = (put(shape, overheads, update_s=seconds).parts_s["update"] for seconds in (1e-6, 1e-2))
    assert small == pytest.approx(apart + 2e-6) and large == pytest.approx(apart + 2e-2)
    assert put(shape, overheads, update_s=1e-6, step="chain").parts_s["update"] == pytest.approx(1e-4 + 2e-6)


def test_on_a_cpu_an_update_takes_as_long_as_its_operations(shape):
    alone = update_alone_s(CPU, with_optimizer(shape, "sgd"), "flat", False)
    assert alone == pytest.approx(CPU.seconds("add_", (shape.parameter_bytes // 4,)))
    assert update_alone_s(CPU, with_optimizer(shape, "adam"), "flat", False) > 5 * alone  # each has a fixed cost
    without = replace(shape, phases=tuple(replace(phase, parameter_shapes=()) for phase in shape.phases))
    assert update_alone_s(CPU, without, "flat", False) == 0.0


def test_recomputation_has_its_own_layer(shape):
    again = replace(shape.operations[0], row="conv1 (recomputed)", direction="backward")
    made = put(replace(shape, operations=(*shape.operations, again)))
    (row,) = [layer for layer in made.layers if layer.name == "conv1 (recomputed)"]
    assert row.backward_s > 0 and row.update_s == 0
    assert sum(layer.backward_s for layer in made.layers) == pytest.approx(made.parts_s["backward"])
