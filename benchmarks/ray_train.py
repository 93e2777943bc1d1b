"""Ray Train's `TorchTrainer` with DistributedDataParallel over gloo, as its documentation writes it."""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from benchmarks.options import digits_of_28
from paceline.step.build import assemble, load_data
from paceline.step.losses import LOSSES
from paceline.step.optimizers import Rule, torch_optimizer
from paceline.workload import resolve

WARM_UP = 5


def trainer_samples_per_s(network: str, batch: int, steps: int, workers: int) -> float:
    """Of all workers, one thread each, after a warm-up."""
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "seconds"
        settings = {"network": network, "batch": batch, "steps": steps, "found": str(found)}
        TorchTrainer(
            _train,
            train_loop_config=settings,
            scaling_config=ScalingConfig(num_workers=workers, use_gpu=False),
            run_config=RunConfig(storage_path=folder),
        ).fit()
        return workers * batch / float(found.read_text())


def _train(settings: dict[str, Any]) -> None:
    from ray.train import get_context
    from ray.train.torch import prepare_model

    torch.set_num_threads(1)
    rank, ranks = get_context().get_world_rank(), get_context().get_world_size()
    batch, steps = settings["batch"], settings["steps"]
    made = {"data": digits_of_28(55_000), "batch": batch, "device": "cpu", "threads": 1}
    workload = resolve(settings["network"], made)
    parts = assemble(workload, load_data(workload), torch.device("cpu"))
    as_fast_as_can_be = {"static_graph": True, "gradient_as_bucket_view": True}
    model = prepare_model(parts.network, parallel_strategy_kwargs=as_fast_as_can_be)
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
    if rank == 0:
        Path(settings["found"]).write_text(str(statistics.mean(times[WARM_UP:])))
