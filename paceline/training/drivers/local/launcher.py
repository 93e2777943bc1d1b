"""Trains a workload with several processes on this machine, or resumes such a run."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from paceline.strategy.presets import find_strategy
from paceline.strategy.strategy import Strategy
from paceline.testing.faults import check_faults
from paceline.training.collective import check_collective
from paceline.training.driver import DistributedOptions, MakeDriver
from paceline.training.drivers.local.local_training import LocalTraining
from paceline.training.drivers.local.process_server import process_server
from paceline.training.drivers.local.shared_memory import check_platform
from paceline.training.run import Run
from paceline.training.training_run import resume_with_workers, train_new
from paceline.workload import Workload


def run(
    workload: Workload,
    strategy: Strategy | str = "sync",
    *,
    workers: int = 2,
    measure: Path | None = None,
    **options: Any,
) -> Run:
    """Trains `workload` with `workers` processes and a server, and returns the record.

    Into the folder `measure` every worker writes where its time goes, layer by layer. `options` are those of
    `DistributedOptions`. The setting `collective` says how a synchronous group averages: from shared memory, or among
    its members with nccl or gloo; auto is nccl where every worker has a GPU of its own.
    """
    given = DistributedOptions.of(options, strategy=find_strategy(strategy), workers=workers)
    _check(given)
    process_server()  # it imports PyTorch while the data are loaded
    return train_new(workload, given, functools.partial(LocalTraining, measure, given))


def resume(directory: str | Path, *, changes: dict[str, Any] | None = None, **options: Any) -> Run:
    """Resumes the distributed run in `directory` from its last checkpoint; other settings stay the same."""

    def prepare(given: DistributedOptions) -> MakeDriver:
        _check(given)
        process_server()
        return functools.partial(LocalTraining, None, given)

    return resume_with_workers(directory, changes or {}, options, prepare)


def _check(options: DistributedOptions) -> None:
    check_platform()
    options.check("local")
    settings = options.settings
    check_collective(settings.collective, options.strategy, options.workers, record_events=settings.record_events)
    check_faults(options.faults, range(options.workers))
