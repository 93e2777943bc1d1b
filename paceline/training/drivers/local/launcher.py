"""Trains a workload with several processes of this machine, or resumes such a run."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from paceline import data
from paceline.errors import CheckpointError, StrategyError
from paceline.record import from_json
from paceline.strategy.presets import find_strategy
from paceline.strategy.strategy import Strategy
from paceline.testing.faults import Fault, check_faults
from paceline.training.checkpoint import Checkpoint, load_checkpoint
from paceline.training.collective import check_collective
from paceline.training.directory import resumable_directory
from paceline.training.driver import CHECKPOINT_EVERY_S, DistributedOptions, MakeDriver, RunOptions
from paceline.training.drivers.local.local_training import KIND, LocalTraining
from paceline.training.drivers.local.process_server import process_server
from paceline.training.drivers.local.shared_memory import check_platform
from paceline.training.resuming import resumed_workload
from paceline.training.run import Run
from paceline.training.settings import DriverSettings
from paceline.training.training_run import resume_from, train_new
from paceline.training.watcher import Watcher
from paceline.workload import Workload

MOST_WORKERS = 240
"""Each worker has an open file by which every other process wakes it."""


def run(
    workload: Workload,
    strategy: Strategy | str = "sync",
    *,
    workers: int = 2,
    out: str | Path | None = None,
    cache: Path | None = None,
    progress: data.Progress | None = None,
    watcher: Watcher | None = None,
    checkpoint_every_s: float = CHECKPOINT_EVERY_S,
    faults: tuple[Fault, ...] = (),
    measure: Path | None = None,
    **settings: Any,
) -> Run:
    """Trains `workload` with `workers` processes and a server, and returns the record.

    With `out`, record and checkpoint are kept there. `faults` are caused on purpose, for tests. Into the folder
    `measure` every worker writes where its time goes, layer by layer. `settings` are those of a driver;
    `collective` says how a synchronous group averages: from shared memory, or among its members with nccl or gloo;
    auto is nccl where every worker has a GPU of its own.
    """
    options = DistributedOptions(
        strategy=find_strategy(strategy), workers=workers, cache=cache, checkpoint_every_s=checkpoint_every_s,
        faults=faults, settings=DriverSettings(**settings),
    )  # fmt: skip
    _check(options)
    process_server()  # it imports PyTorch while the data are loaded
    make = functools.partial(LocalTraining, measure, options)
    return train_new(workload, options, make, out=out, progress=progress, watcher=watcher)


def resume(
    directory: str | Path,
    *,
    changes: dict[str, Any] | None = None,
    cache: Path | None = None,
    progress: data.Progress | None = None,
    watcher: Watcher | None = None,
    checkpoint_every_s: float = CHECKPOINT_EVERY_S,
    faults: tuple[Fault, ...] = (),
    **settings: Any,
) -> Run:
    """Resumes the distributed run in `directory` from its last checkpoint; what is not given is as before."""

    def plan(checkpoint: Checkpoint, place: Path) -> tuple[Workload, RunOptions, MakeDriver]:
        if checkpoint.step_kind != KIND:
            raise CheckpointError(f"{place} is of a run in one process: resume it without a strategy")
        workload = resumed_workload(checkpoint, changes or {}, place)
        strategy, workers, threads = _saved(checkpoint.optimizer, place)
        given = DriverSettings(**{"server_threads": threads, **settings})
        options = DistributedOptions(
            strategy=strategy, workers=workers, cache=cache, checkpoint_every_s=checkpoint_every_s, faults=faults,
            settings=given,
        )  # fmt: skip
        _check(options)
        process_server()
        return workload, options, functools.partial(LocalTraining, None, options)

    return resume_from(directory, plan, progress=progress, watcher=watcher)


def is_distributed(directory: str | Path) -> bool:
    """Whether the run in `directory` is one for `resume`."""
    return load_checkpoint(resumable_directory(Path(directory))).step_kind == KIND


def _saved(saved: dict[str, Any], place: Path) -> tuple[Strategy, int, int]:
    """The strategy of a checkpoint, its number of workers and of server threads."""
    try:
        strategy: Strategy = from_json(Strategy, saved["strategy"], "strategy")
        return strategy, int(saved["workers"]), int(saved["server_threads"])
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{place} is not of a distributed run: {error}") from error


def _check(options: DistributedOptions) -> None:
    check_platform()
    options.check("local")
    if options.workers > MOST_WORKERS:
        raise StrategyError(f"workers={options.workers} are too many for one machine: at most {MOST_WORKERS}")
    settings = options.settings
    check_collective(settings.collective, options.strategy, options.workers, record_events=settings.record_events)
    check_faults(options.faults, range(options.workers))
