"""The timed loop of a process that trains with DistributedDataParallel, however its processes were started."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from time import perf_counter

import torch
from torch import nn

from benchmarks.options import digits_of_28
from paceline.step.build import assemble, load_data
from paceline.step.losses import LOSSES
from paceline.step.optimizers import Rule, torch_optimizer
from paceline.workload import resolve

WARM_UP = 5
AS_FAST_AS_CAN_BE = {"static_graph": True, "gradient_as_bucket_view": True}


def step_s(
    network: str, batch: int, steps: int, rank: int, ranks: int, wrap: Callable[[nn.Module], nn.Module]
) -> float:
    """Mean seconds per step with one thread, after a warm-up; `wrap` makes the network a distributed one."""
    torch.set_num_threads(1)
    workload = resolve(network, {"data": digits_of_28(55_000), "batch": batch, "device": "cpu", "threads": 1})
    parts = assemble(workload, load_data(workload), torch.device("cpu"))
    model = wrap(parts.network)
    optimizer = torch_optimizer(Rule.of(workload), list(model.parameters()))
    loss_of, times = LOSSES[workload.loss], []
    batches = parts.feeder.order.permutation(0).split(batch)[rank::ranks]
    for number in range(WARM_UP + steps):
        start_s = perf_counter()
        x, y = parts.feeder.gather(batches[number % (len(batches) - 1)])  # type: ignore[union-attr]
        optimizer.zero_grad(set_to_none=True)
        loss_of(model(x), y).backward()
        optimizer.step()
        times.append(perf_counter() - start_s)
    return statistics.mean(times[WARM_UP:])
