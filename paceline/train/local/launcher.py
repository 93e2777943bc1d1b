"""Trains a workload with several processes of this machine, or goes on with such a run."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

from paceline import data, user_code
from paceline.errors import CheckpointError, StrategyError, WorkloadError
from paceline.step.build import load_data
from paceline.strategy.event_record import EVENTS
from paceline.strategy.pieces import check_shards
from paceline.strategy.refusals import check_policy
from paceline.strategy.strategy import Strategy, preset
from paceline.testing.faults import Fault, check_faults
from paceline.trace import Recorder
from paceline.train.checkpoint import load_checkpoint
from paceline.train.directory import check_new, new_directory, resumable_directory
from paceline.train.failures import explained
from paceline.train.local.collective import check_collective
from paceline.train.local.crew import Patience
from paceline.train.local.saved_state import KIND, saved_shards, saved_strategy
from paceline.train.local.training import LocalTraining, Options
from paceline.train.resuming import resumed_workload
from paceline.train.run import Run
from paceline.train.watcher import Silent, Watcher
from paceline.workload import Workload

CHECKPOINT_EVERY_S = 20.0


def run(
    workload: Workload,
    strategy: Strategy | str = "downpour",
    *,
    workers: int = 2,
    out: str | Path | None = None,
    cache: Path | None = None,
    progress: data.Progress | None = None,
    watcher: Watcher | None = None,
    on_bad_gradient: str = "stop",
    worker_timeout_s: float = 30.0,
    record_events: bool = False,
    checkpoint_every_s: float = CHECKPOINT_EVERY_S,
    faults: tuple[Fault, ...] = (),
    measure: Path | None = None,
    shards: int = 1,
    collective: str = "auto",
) -> Run:
    """Trains `workload` with `workers` processes and a server, and returns the record.

    With `out`, record and checkpoint are kept there. `faults` are met on purpose, for tests. Into the folder `measure`
    every worker writes where its time goes, layer by layer. The server is `shards` processes, which make every update
    together, each its piece of the parameters. `collective` says how a synchronous group adds up: from shared memory,
    or among its members with nccl or gloo; auto is nccl where every worker has a GPU of its own.
    """
    module = user_code.importing()
    if module:
        raise WorkloadError(f'importing {module} starts training; put that under: if __name__ == "__main__":')
    strategy = preset(strategy) if isinstance(strategy, str) else strategy
    options = Options(
        strategy, workers, cache, on_bad_gradient, record_events, _patience(worker_timeout_s), checkpoint_every_s,
        faults, measure, shards, collective,
    )  # fmt: skip
    _check(options)
    if out is not None:
        check_new(Path(out))
    recorder = Recorder()
    with recorder.span("load"), explained(workload):
        dataset = load_data(workload, cache, progress)
    with explained(workload), LocalTraining(workload, dataset, options, recorder, watcher or Silent()) as training:
        if out is not None:
            training.directory = new_directory(Path(out))
        return training.train()


def resume(
    directory: str | Path,
    *,
    changes: dict[str, Any] | None = None,
    cache: Path | None = None,
    progress: data.Progress | None = None,
    watcher: Watcher | None = None,
    on_bad_gradient: str = "stop",
    worker_timeout_s: float = 30.0,
    checkpoint_every_s: float = CHECKPOINT_EVERY_S,
    faults: tuple[Fault, ...] = (),
    shards: int | None = None,
    collective: str = "auto",
) -> Run:
    """Goes on with the distributed run in `directory` from its last checkpoint; `shards` are as before if not given."""
    place = resumable_directory(Path(directory))
    checkpoint = load_checkpoint(place)
    if checkpoint.step_kind != KIND:
        raise CheckpointError(f"{place} is of a run in one process: go on with it without a strategy")
    workload = resumed_workload(checkpoint, changes or {}, place)
    strategy, workers = saved_strategy(checkpoint.optimizer, str(place))
    options = Options(
        strategy, workers, cache, on_bad_gradient, False, _patience(worker_timeout_s), checkpoint_every_s,
        faults, shards=saved_shards(checkpoint.optimizer) if shards is None else shards,
        collective=collective,
    )  # fmt: skip
    _check(options)
    recorder = Recorder()
    with recorder.span("load"), explained(workload):
        dataset = load_data(workload, cache, progress)
    with explained(workload), LocalTraining(workload, dataset, options, recorder, watcher or Silent()) as training:
        training.directory = place
        training.restore(checkpoint, place)
        (place / EVENTS).unlink(missing_ok=True)  # what was recorded tells only of the part before
        return training.train()


def is_distributed(directory: str | Path) -> bool:
    """Whether the run in `directory` is one for `resume`."""
    return load_checkpoint(resumable_directory(Path(directory))).step_kind == KIND


def _patience(worker_timeout_s: float) -> Patience:
    if not (math.isfinite(worker_timeout_s) and worker_timeout_s > 0):
        raise StrategyError(f"worker-timeout={worker_timeout_s:g} should be above 0 seconds")
    return replace(Patience(), worker_s=worker_timeout_s)


def _check(options: Options) -> None:
    check_policy(options.on_bad_gradient)
    options.strategy.check(options.workers)
    check_shards(options.shards, options.strategy)
    check_collective(options.collective, options.strategy, options.workers, record_events=options.record_events)
    check_faults(options.faults, range(options.workers), options.shards)
