"""Accelerate needs no callback: the clock is opened around the prepared model."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import paceline


@pytest.mark.slow
def test_the_recipe():
    accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(TensorDataset(torch.randn(96, 4), torch.randint(2, (96,))), batch_size=4)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    with paceline.LayerClock(model, every=2, warm_up=1) as clock:
        for x, y in clock.batches(loader):
            with accelerator.accumulate(model):
                accelerator.backward(nn.functional.cross_entropy(model(x), y))
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
    measured = clock.measurement()
    assert measured.batch == 8 and measured.iterations == 11
    assert all(measured.parts_s[part] > 0.0 for part in ("forward", "backward", "clip", "update", "load"))
