"""The quick timing of a network on a GPU, against a loop timed by hand."""

from __future__ import annotations

from time import perf_counter

import pytest
import torch

from paceline.measurement.network_times import time_network
from paceline.step.build import assemble, load_data
from paceline.step.choose import make_step
from paceline.step.tally import Tally
from paceline.workload import Workload

pytestmark = pytest.mark.gpu
WORKLOAD = Workload("lenet5", "synthetic:1x28x28/10:4096", batch=64, device="cuda")


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
    assert found.iteration_s == pytest.approx(sorted(took)[2], rel=0.6)
    assert {"conv1", "fc1"} <= set(found.layers) and all(min(both) >= 0 for both in found.layers.values())
    busy = sum(map(sum, found.layers.values())) + sum(found.parts_s.values())
    assert 0 < busy < 1.3 * found.iteration_s
    assert (found.host_s > 0) == (step == "plain")
