"""DistributedDataParallel at its best on one machine; `python -m benchmarks.ddp SETTINGS RANK` is one process."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from benchmarks.ddp_loop import AS_FAST_AS_CAN_BE, step_s
from paceline.child_environment import child_environment

RANKS = 2


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
    distributed.init_process_group("gloo", init_method=f"file://{meet}", rank=rank, world_size=RANKS)
    wrap = functools.partial(DistributedDataParallel, **AS_FAST_AS_CAN_BE)
    found_s = step_s(network, batch, steps, rank, RANKS, wrap)
    if rank == 0:
        print(found_s)
    distributed.barrier()
    distributed.destroy_process_group()


if __name__ == "__main__":
    _run(*json.loads(sys.argv[1]), int(sys.argv[2]))
