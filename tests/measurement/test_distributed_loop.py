"""The clock in a distributed training loop: every process measures its own layers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import paceline
from paceline import record
from paceline.measurement.layer_clock import LayerClock
from tests.measurement.slow_layers import SlowLayer, hooks_of, iterations

pytestmark = pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="no gloo here")


def train(rank: int, size: int, folder: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=size)
    try:
        slow = SlowLayer(0.005, 0.010)
        model = DistributedDataParallel(nn.Sequential(nn.Linear(4, 4), slow, nn.ReLU(inplace=True), nn.Linear(4, 4)))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with LayerClock(model, optimizer, every=2, warm_up=1) as clock:
            for x in iterations(clock, 11):
                optimizer.zero_grad()
                model(x).sum().backward()
                optimizer.step()
        assert hooks_of(model) == 0
        record.save(clock.measurement(), folder / f"{rank}.json")
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize("size", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_layers_are_measured_in_every_process(size, tmp_path):
    if size == 1:
        train(0, 1, tmp_path)
    else:
        torch.multiprocessing.spawn(train, (size, tmp_path), nprocs=size)
    for rank in range(size):
        layers = {layer.name: layer for layer in paceline.load(tmp_path / f"{rank}.json").layers}
        assert {"module.0", "module.1", "module.2", "module.3"} <= set(layers)
        assert layers["module.1"].forward_s.median_s >= 0.004
        assert layers["module.1"].backward_s.median_s >= 0.008
        assert layers["module.0"].backward_s.median_s > 0.0
