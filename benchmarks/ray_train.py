"""Ray Train's `TorchTrainer` with DistributedDataParallel over gloo, as its documentation writes it."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.ddp_loop import AS_FAST_AS_CAN_BE, step_s


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

    rank, ranks = get_context().get_world_rank(), get_context().get_world_size()
    wrap = functools.partial(prepare_model, parallel_strategy_kwargs=AS_FAST_AS_CAN_BE)
    found_s = step_s(settings["network"], settings["batch"], settings["steps"], rank, ranks, wrap)
    if rank == 0:
        Path(settings["found"]).write_text(str(found_s))
