"""How concurrent runs share the cores of this machine."""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import pairwise

from paceline.experiment.keys import is_alone
from paceline.formatting import count
from paceline.results.outcome import PlannedRun


def cores_of_jobs(jobs: int) -> list[tuple[int, ...]]:
    """Every job has its own cores if there are enough; a single job has all of them."""
    cores = sorted(os.sched_getaffinity(0))
    if jobs > len(cores):
        return [(cores[job % len(cores)],) for job in range(jobs)]
    bounds = [job * len(cores) // jobs for job in range(jobs + 1)]
    return [tuple(cores[a:b]) for a, b in pairwise(bounds)]


def crowding(runs: Iterable[PlannedRun], cores: list[tuple[int, ...]], jobs: int) -> list[str]:
    """Notes on runs that need more cores or GPUs than there are, so that their times are longer."""
    import torch

    notes = []
    all_cores = len({core for share in cores for core in share})
    if jobs > all_cores:
        notes.append(f"{jobs} runs at a time share {all_cores} cores: their times are not those of an idle machine")
    least, run = min(map(len, cores)), max(runs, key=_threads)
    if _threads(run) > least:
        each = f"{count(least, 'core')} {'of each' if jobs > 1 else 'there are'}"
        uses = f"{run.label or 'every run'} uses {_threads(run)} threads"
        notes.append(f"{uses}, more than the {each}: they will wait for each other")
    if jobs > 1 and torch.cuda.is_available():
        notes.append(f"{jobs} runs at a time share the GPU: their times are not those of an idle one")
    return notes


def _threads(run: PlannedRun) -> int:
    """Threads that it is known to use at the same time."""
    local = run.settings.get("driver", "local") == "local" and run.kind == "train" and not is_alone(run.settings)
    return (run.workers if local else 1) * max(1, run.workload.threads)
