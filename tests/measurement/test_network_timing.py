"""The quick timing of a network on a GPU, against a loop timed by hand."""

from __future__ import annotations

from time import perf_counter
from types import SimpleNamespace

import pytest
import torch

from paceline.measurement import network_timing
from paceline.measurement.network_timing import time_network
from paceline.step.build import assemble, load_data
from paceline.step.make import make_step
from paceline.step.tally import Tally
from paceline.workload import Workload

WORKLOAD = Workload("lenet5", "synthetic:1x28x28/10:4096", batch=64, device="cuda")


class FakeStep:
    """Three batches per epoch; the clock goes on by a second per batch, and by 100 at the begin of an epoch."""

    def __init__(self) -> None:
        order = SimpleNamespace(full_batches=3)
        self.parts = SimpleNamespace(workload=WORKLOAD, feeder=SimpleNamespace(order=order))
        self.clock_s, self.pieces = 0.0, []

    def begin(self, epoch: int) -> None:
        self.clock_s += 100.0
        self.pieces.append("begin")

    def advance(self, count: int, tally: Tally) -> None:
        self.clock_s += count
        self.pieces.append(count)


def test_the_begin_of_an_epoch_is_not_timed_and_an_epoch_is_one_piece(monkeypatch):
    step = FakeStep()
    monkeypatch.setattr(network_timing, "perf_counter", lambda: step.clock_s)
    runner = network_timing._Runner(step, torch.device("cpu"))
    runner.run(1)
    assert [runner.seconds(50) for _ in range(2)] == [1.0, 1.0]
    assert step.pieces == ["begin", 1, 2, "begin", 3, "begin", 3]
    assert runner.seconds(2) == 1.0 and step.pieces[7:] == ["begin", 2]


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("step", ["plain", "graph"])
def test_times_agree_with_a_loop_timed_by_hand(step, precision):
    workload = Workload(**{**vars(WORKLOAD), "precision": precision})
    found = time_network(workload, step)
    parts = assemble(workload, load_data(workload), torch.device("cuda"))
    taken, _ = make_step(parts, step)
    tally, took = Tally(5), []
    for epoch in range(6):
        taken.begin(epoch)
        torch.cuda.synchronize()
        start = perf_counter()
        taken.advance(parts.updates_per_epoch, tally)
        torch.cuda.synchronize()
        took.append((perf_counter() - start) / parts.updates_per_epoch)
    assert found.iteration_s == pytest.approx(sorted(took)[2], rel=0.3)
    assert {"conv1", "fc1"} <= set(found.layers) and all(min(both) >= 0 for both in found.layers.values())
    busy = sum(map(sum, found.layers.values())) + sum(found.parts_s.values())
    assert 0 < busy < 1.3 * found.iteration_s
    assert (found.host_s > 0) == (step == "plain")
