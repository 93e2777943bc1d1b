"""The clock in a distributed training loop: every process measures its own layers, and what the exchange costs it."""

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

SMALLEST_BUCKET_MB = 1e-4
"""Every gradient is exchanged by itself, so that the first exchanges overlap with the rest of the backward pass."""


def train(rank: int, size: int, folder: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=size)
    try:
        slow = SlowLayer(0.005, 0.010)
        layers = nn.Sequential(nn.Linear(4, 4), slow, nn.ReLU(inplace=True), nn.Linear(4, 4))
        model = DistributedDataParallel(layers, bucket_cap_mb=SMALLEST_BUCKET_MB)
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
        measured = paceline.load(tmp_path / f"{rank}.json")
        layers = {layer.name: layer for layer in measured.layers}
        assert {"module.0", "module.1", "module.2", "module.3"} <= set(layers)
        assert layers["module.1"].forward_s.median_s >= 0.004
        assert layers["module.1"].backward_s.median_s >= 0.008
        assert layers["module.0"].backward_s.median_s > 0.0
        assert measured.parts_s["communicate"] > 0.0
        assert measured.hidden_communication_s > 0.0


def test_a_sharded_model(tmp_path):
    from torch.distributed.fsdp import fully_shard

    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1)
    try:
        model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
        mesh = dist.init_device_mesh("cpu", (1,))
        for layer in (model[0], model[2], model):
            fully_shard(layer, mesh=mesh)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with LayerClock(model, every=2, warm_up=1) as clock:
            for x in clock.batches(torch.randn(9, 3, 4)):
                model(x).sum().backward()
                optimizer.step()
                optimizer.zero_grad()
        measured = clock.measurement()
    finally:
        dist.destroy_process_group()
    assert measured.iterations == 9 and {"0", "2"} <= {layer.name for layer in measured.layers}
    assert sum(measured.parts_s.values()) == pytest.approx(measured.iteration_s.mean_s)
