"""A batch computed in micro-batches takes the time of these and of one update, and the memory of one of them."""

from __future__ import annotations

import pytest

from paceline.cost.allocations import FREED
from paceline.cost.op_tracing import NetworkShape
from paceline.cost.predicting import predict
from paceline.cost.prediction import Prediction
from paceline.cost.workload_tracing import DataShape, trace_workload
from paceline.workload import resolve

IMAGES = DataShape("image", (3, 32, 32), 10, 4096)


def shape_of(batch: int, accumulate: int = 1) -> NetworkShape:
    return trace_workload(resolve("resnet20", {"batch": batch, "accumulate": accumulate}), IMAGES, on_gpu=True)


def on(device: str, batch: int, accumulate: int = 1, network: str = "resnet20", step: str = "auto") -> Prediction:
    workload = resolve(network, {"batch": batch, "accumulate": accumulate, "optimizer": "adam"})
    return predict(workload, device, data=IMAGES, step=step)


@pytest.mark.parametrize("device", ["H200", "EPYC 9004 2 vCPU"])
def test_four_micro_batches_and_one_update(device):
    small, whole = on(device, 16), on(device, 64, 4)
    computed = {part: whole.parts_s[part] / small.parts_s[part] for part in ("forward", "backward", "update")}
    assert computed["forward"] == pytest.approx(4, rel=0.05)
    assert 4 < computed["backward"] < 4.6, "gradients are added up too"
    assert computed["update"] == pytest.approx(1)
    expected_s = 4 * small.iteration_s - 3 * small.parts_s["update"]
    assert whole.batch == 64 and whole.iteration_s == pytest.approx(expected_s, rel=0.15)


def test_small_micro_batches_are_slower_than_the_whole_batch():
    assert on("H200", 64, 16).iteration_s > 1.5 * on("H200", 64).iteration_s


def test_a_smaller_last_micro_batch():
    """Ten samples in four micro-batches of at most three: 3, 3, 3 and 1."""
    parts = [*([shape_of(3)] * 3), shape_of(1)]
    whole = shape_of(10, 4)
    added = 3 * len(whole.parameter_shapes)
    assert len(whole.operations) == sum(len(part.operations) for part in parts) + added
    assert whole.flops == pytest.approx(sum(part.flops for part in parts), rel=0.01)
    assert whole.phases[0].memory.batch_bytes == shape_of(10).phases[0].memory.batch_bytes


def test_memory_is_that_of_a_micro_batch_and_two_more_gradients():
    small, whole, large = (on("H200", *case, step="plain").memory_bytes for case in ((256,), (2048, 8), (2048,)))
    assert small < whole < 0.5 * large


def test_every_block_is_freed_once_and_the_sums_are_left():
    memory = shape_of(12, 3).phases[0].memory
    live: set[int] = set()
    for number, size in memory.events:
        if size == FREED:
            live.remove(number)
        else:
            assert number not in live
            live.add(number)
    assert live == {*memory.gradients, *memory.kept}


def test_a_chain_that_accumulates_has_no_written_out_gradient():
    """Its operations are those of autograd, the loss among them."""
    one, four = (on("H200", 64, accumulate, "mlp", "graph") for accumulate in (1, 4))
    assert four.iteration_s > 2 * one.iteration_s
