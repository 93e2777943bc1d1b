"""The update of the parameters: the operations of PyTorch's optimizers and of the flat step, and their memory."""

from __future__ import annotations

import pytest
import torch

from paceline.cost.allocations import FREED
from paceline.cost.update_tracing import trace_update, update_passes
from paceline.step.optimizers import Rule
from paceline.workload import OPTIMIZERS

SHAPES = ((1024, 1024), (1024,), (512, 1024))
ELEMENTS = 1024 * 1024 + 1024 + 512 * 1024


def peak(events) -> int:
    most = now = 0
    sizes = {}
    for number, size in events:
        if size == FREED:
            now -= sizes[number]
        else:
            sizes[number] = size
            now += size
        most = max(most, now)
    return most


@pytest.mark.parametrize("step", ["plain", "flat"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_optimizer_is_traced(optimizer, step):
    found = trace_update(SHAPES, Rule(optimizer, 0.1), step, True)
    assert found.operations and all(o.direction == "update" and o.known for o in found.operations)
    assert all(o.read_bytes >= 4 * ELEMENTS for o in found.operations)


def test_on_a_gpu_torch_optim_updates_all_parameters_at_once():
    found = trace_update(SHAPES, Rule("adam", 0.1), "plain", True)
    names = [o.name for o in found.operations]
    assert names[:3] == ["_foreach_lerp_", "_foreach_mul_", "_foreach_addcmul_"] and len(names) == 7
    assert {o.sizes for o in found.operations} == {(ELEMENTS,)}
    (lerp, *_) = found.operations
    assert (lerp.read_bytes, lerp.written_bytes) == (8 * ELEMENTS, 4 * ELEMENTS)


def test_on_a_cpu_it_updates_them_one_by_one():
    names = [o.name for o in trace_update(SHAPES, Rule("momentum", 0.1), "plain", False).operations]
    assert len(names) > len(SHAPES) and not any(name.startswith("_foreach") for name in names)


def fused(named):
    return torch.optim.AdamW(named.values(), lr=0.1, fused=True)


def test_a_fused_optimizer_is_one_operation_with_its_traffic():
    (only,) = trace_update(SHAPES, Rule(f"{__name__}:fused", 0.1), "plain", True).operations
    assert only.name == "_fused_adamw_"
    assert only.read_bytes == pytest.approx(16 * ELEMENTS, rel=1e-3)
    assert only.written_bytes == pytest.approx(16 * ELEMENTS, rel=0.3)
    assert only.sizes[0] == pytest.approx(ELEMENTS * 7 / 3, rel=1e-3)


def test_the_first_update_makes_the_state():
    found = trace_update(SHAPES, Rule("adam", 0.1), "plain", True)
    state = 2 * 4 * ELEMENTS
    assert peak(found.first_events) - peak(found.events) == pytest.approx(state, rel=0.01)
    assert peak(found.events) == pytest.approx(4 * ELEMENTS, rel=0.01)  # the square roots
    assert not found.state_bytes


def test_a_flat_step_has_its_state_before():
    found = trace_update(SHAPES, Rule("adam", 0.1), "flat", True)
    assert found.state_bytes[:2] == (4 * ELEMENTS, 4 * ELEMENTS)
    assert peak(found.events) == pytest.approx(8 * ELEMENTS, rel=0.01)
    assert found.operations[0].name == "cat"


def test_sgd_of_a_large_network_is_one_fused_operation():
    (only,) = trace_update(SHAPES, Rule("sgd", 0.1), "flat", True).operations
    assert (only.name, only.sizes, only.read_bytes) == ("_fused_sgd_", (ELEMENTS,), 8 * ELEMENTS)
    assert len(trace_update(((100, 100),), Rule("sgd", 0.1), "flat", True).operations) == 2


def broken(named):
    raise RuntimeError("no optimizer today")


def test_the_time_of_an_update_goes_by_its_traffic():
    """Adam by torch.optim moves 7 times, in one fused kernel 2 to 3 times as much as SGD."""
    passes = {
        name: update_passes(SHAPES, Rule(name, 0.1), "plain", True)
        for name in ("sgd", "momentum", "adam", "adamw", f"{__name__}:fused")
    }
    assert passes["sgd"] == 1.0 and 1.5 < passes["momentum"] < 3
    assert 5 < passes["adam"] < passes["adamw"] < 9
    assert 2 < passes[f"{__name__}:fused"] < 3
    assert update_passes(SHAPES, Rule("adam", 0.1), "flat", True) > passes["adam"], "the flat step has no fused Adam"


def test_an_optimizer_that_cannot_be_traced_counts_as_adamw():
    own, adamw = (update_passes(SHAPES, Rule(name, 0.1), "plain", False) for name in (f"{__name__}:broken", "adamw"))
    assert own == adamw


def test_a_network_without_parameters_has_no_update():
    assert update_passes((), Rule("adam", 0.1), "flat", True) == 0.0
