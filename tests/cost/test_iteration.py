"""An iteration is put together: its parts add up, its interval holds the middle, a GPU waits for its host or not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from paceline.cost.calibration import Habits
from paceline.cost.iteration import PASSES, Iteration, put_together
from paceline.cost.model import CostModel
from paceline.cost.reading import NetworkShape
from paceline.cost.reading_workload import DataShape, read_workload
from paceline.measurement.mark_log import SCORE
from paceline.workload import OPTIMIZERS, resolve
from tests.cost.invented import Law, calibration

DIGITS = DataShape("image", (1, 8, 8), 10, 1437)
LAW = Law()


@pytest.fixture(scope="module")
def shape() -> NetworkShape:
    return read_workload(resolve("lenet5", {"batch": 8}), DIGITS)


CPU, GPU = CostModel(calibration("cpu", LAW), threads=1), CostModel(calibration("cuda", LAW))


def put(shape: NetworkShape, habits: Habits = Habits(), *, on_gpu: bool = False, **changes: object) -> Iteration:
    model = GPU if on_gpu else CPU
    given: Mapping[str, object] = {"step": "graph" if on_gpu else "flat", "optimizer": "sgd", "sample_elements": 512}
    return put_together(model, habits, shape, model.cost(shape.operations), on_gpu=on_gpu, **{**given, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize("on_gpu", [False, True])
def test_parts_add_up_and_so_do_layers(shape, on_gpu):
    habits = Habits(forward_s=1e-6, backward_s=2e-6, gap_s=1e-6, load_s=3e-6, score_s=4e-6, loop_s=5e-6)
    made = put(shape, habits, on_gpu=on_gpu)
    assert sum(made.parts_s.values()) == pytest.approx(made.seconds)
    assert made.low_s < made.seconds < made.high_s
    for part in ("forward", "backward", "update"):
        assert sum(getattr(layer, f"{part}_s") for layer in made.layers) == pytest.approx(made.parts_s[part])
    for layer in made.layers:
        assert layer.low_s <= layer.forward_s + layer.backward_s <= layer.high_s
    assert sum(layer.flops for layer in made.layers) == pytest.approx(shape.flops)


def test_operations_take_what_the_law_says_and_the_step_adds_to_each(shape):
    plain, dearer = put(shape), put(shape, Habits(forward_s=1e-3))
    alone = sum(LAW.seconds(o.family, o.sizes) for o in shape.operations if o.direction == "forward")
    assert plain.parts_s["forward"] == pytest.approx(alone, rel=0.1)
    count = sum(o.direction == "forward" for o in shape.operations)
    assert dearer.parts_s["forward"] - plain.parts_s["forward"] == pytest.approx(count * 1e-3)
    assert dearer.parts_s["backward"] == plain.parts_s["backward"]


def test_a_family_s_factor_and_spread(shape):
    plain, doubled = put(shape), put(shape, Habits(factors={"convolution": 2.0}))
    own = sum(c.seconds for c in CPU.cost(shape.operations) if c.operation.family == "convolution")
    assert doubled.seconds - plain.seconds == pytest.approx(own)
    unsure = put(shape, Habits(spreads={"convolution": 1.0, "convolution_backward": 1.0}))
    assert unsure.seconds == plain.seconds and unsure.high_s > plain.high_s and unsure.low_s < plain.low_s


def test_an_operation_that_was_never_tried_makes_the_interval_wider(shape):
    largest = max(range(len(shape.operations)), key=lambda n: CPU.cost(shape.operations)[n].seconds)
    operations = list(shape.operations)
    operations[largest] = replace(operations[largest], known=False)
    known, unknown = put(shape), put(replace(shape, operations=tuple(operations)))
    assert unknown.seconds == known.seconds
    assert unknown.high_s > known.high_s and unknown.low_s < known.low_s


def test_a_slower_machine_and_a_less_certain_one(shape):
    usual, unsure = put(shape), put(shape, wider=0.3)
    slow = put(shape, drift=dict.fromkeys(("product", "convolution", "elementwise"), 2.0))
    assert slow.seconds == pytest.approx(2 * usual.seconds) and slow.high_s == pytest.approx(2 * usual.high_s)
    assert unsure.seconds == usual.seconds
    assert unsure.high_s / unsure.low_s > 1.2 * usual.high_s / usual.low_s


def test_what_slows_convolutions_slows_nothing_else(shape):
    usual, slow = put(shape), put(shape, drift={"convolution": 3.0})
    own = sum(c.seconds for c in CPU.cost(shape.operations) if c.operation.family.startswith("convolution"))
    assert own > 0 and slow.seconds - usual.seconds == pytest.approx(2 * own)


def test_updates_take_longer_by_what_was_seen(shape):
    usual, slow = put(shape), put(shape, Habits(update_factor=1.5))
    assert slow.parts_s["update"] == pytest.approx(1.5 * usual.parts_s["update"])


def test_a_captured_step_waits_between_operations(shape):
    made = put(shape, Habits(gap_s=2e-6, launch_s=1.0), on_gpu=True)
    assert made.parts_s["idle"] == pytest.approx(2e-6 * len(shape.operations))


def test_a_step_that_is_not_captured_waits_for_the_host_only_where_that_is_slower(shape):
    count = len(shape.operations)
    busy = sum(p for name, p in put(shape, on_gpu=True, step="flat").parts_s.items() if name != "idle")
    slow_host = put(shape, Habits(launch_s=10 * busy / count), on_gpu=True, step="flat")
    assert slow_host.seconds == pytest.approx(10 * busy)
    fast_host = put(shape, Habits(launch_s=0.1 * busy / count, gap_s=1e-9), on_gpu=True, step="flat")
    assert fast_host.parts_s["idle"] == pytest.approx(1e-9 * count)


def test_loading_counts_on_a_cpu_and_is_hidden_on_a_gpu(shape):
    habits = Habits(load_s=1e-5, load_element_s=1e-9)
    assert put(shape, habits).parts_s["load"] == pytest.approx(1e-5 + 512e-9)
    assert put(shape, habits, on_gpu=True).parts_s["load"] == 0.0
    copied = put(shape, Habits(load_s=1e-5)).parts_s["load"] - 1e-5  # an older calibration, which does not say
    assert copied == pytest.approx(LAW.seconds("copy", (512,)), rel=0.2)


def test_loss_and_accuracy_are_a_row(shape):
    made = put(shape, Habits(score_s=7e-6))
    assert [layer.forward_s for layer in made.layers if layer.name == SCORE] == [7e-6]
    assert not [layer for layer in put(shape).layers if layer.name == SCORE]


def test_updates_of_all_optimizers_grow_with_what_they_do(shape):
    assert set(PASSES) == set(OPTIMIZERS)
    took = {name: put(shape, optimizer=name, on_gpu=True).parts_s["update"] for name in OPTIMIZERS}
    assert 0 < took["sgd"] < took["momentum"] < took["adam"] < took["nadam"]
    largest = max(put(shape).layers, key=lambda layer: layer.update_s)
    assert largest.name == max(shape.rows, key=lambda name: shape.rows[name].parameters)


def test_what_is_recomputed_has_a_layer_of_its_own(shape):
    again = replace(shape.operations[0], row="conv1 (recomputed)", direction="backward")
    made = put(replace(shape, operations=(*shape.operations, again)))
    (row,) = [layer for layer in made.layers if layer.name == "conv1 (recomputed)"]
    assert row.backward_s > 0 and row.update_s == 0
    assert sum(layer.backward_s for layer in made.layers) == pytest.approx(made.parts_s["backward"])
