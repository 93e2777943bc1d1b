"""DistributedDataParallel at its best on one machine; `python -m benchmarks.ddp SETTINGS RANK` is one process."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from benchmarks.options import digits_of_28
from paceline.child_environment import child_environment
from paceline.step.build import assemble, load_data
from paceline.step.losses import LOSSES
from paceline.step.optimizers import Rule, torch_optimizer
from paceline.workload import resolve

RANKS = 2
WARM_UP = 5


def ddp_samples_per_s(network: str, batch: int, steps: int) -> float:
    """Of two processes with gloo, a static graph and gradients as views of the buckets, one thread each."""
    with tempfile.TemporaryDirectory() as folder:
        settings = json.dumps([network, batch, steps, str(Path(folder) / "meet")])
        ranks = [
            subprocess.Popen(
                [sys.executable, "-m", "benchmarks.ddp", settings, str(rank)],
                stdout=subprocess.PIPE,
                env=child_environment(OMP_NUM_THREADS="1"),
            )
            for rank in range(RANKS)
        ]
        printed = [rank.communicate(timeout=600)[0] for rank in ranks]
    return RANKS * batch / float(printed[0])


def _run(network: str, batch: int, steps: int, meet: str, rank: int) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{meet}", rank=rank, world_size=RANKS)
    workload = resolve(network, {"data": digits_of_28(55_000), "batch": batch, "device": "cpu", "threads": 1})
    parts = assemble(workload, load_data(workload), torch.device("cpu"))
    model = DistributedDataParallel(parts.network, static_graph=True, gradient_as_bucket_view=True)
    optimizer = torch_optimizer(Rule.of(workload), list(model.parameters()))
    loss_of, times = LOSSES[workload.loss], []
    batches = parts.feeder.order.permutation(0).split(batch)[rank::RANKS]
    for number in range(WARM_UP + steps):
        start_s = perf_counter()
        x, y = parts.feeder.gather(batches[number % (len(batches) - 1)])  # type: ignore[union-attr]
        optimizer.zero_grad(set_to_none=True)
        loss_of(model(x), y).backward()
        optimizer.step()
        times.append(perf_counter() - start_s)
    if rank == 0:
        print(statistics.mean(times[WARM_UP:]))
    distributed.barrier()
    distributed.destroy_process_group()


if __name__ == "__main__":
    _run(*json.loads(sys.argv[1]), int(sys.argv[2]))
