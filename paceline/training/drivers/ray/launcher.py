"""`run` trains on a Ray cluster, `resume` continues a run there, whichever driver it began on."""

from __future__ import annotations

import functools
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import Any

from paceline.data.entries import MODULES
from paceline.data.source import parse
from paceline.strategy.presets import find_strategy
from paceline.strategy.strategy import Strategy
from paceline.testing.faults import check_faults
from paceline.training.driver import DistributedOptions, MakeDriver
from paceline.training.drivers.ray.connection import connected, import_ray
from paceline.training.drivers.ray.ray_training import RayTraining
from paceline.training.run import Run
from paceline.training.training_run import resume_with_workers, train_new
from paceline.workload import Workload


def run(workload: Workload, strategy: Strategy | str = "sync", *, workers: int = 2, **options: Any) -> Run:
    """Trains `workload` with `workers` actors and a server of a Ray cluster, and returns the record.

    `options` are those of `DistributedOptions`. The setting `address` says which cluster; without it one is started on
    this machine, or the one that this process is connected to is used.
    """
    given = DistributedOptions.of(options, strategy=find_strategy(strategy), workers=workers)
    _check(given)
    with _connected_for(workload, given):
        return train_new(workload, given, functools.partial(RayTraining, given))


def resume(directory: str | Path, *, changes: dict[str, Any] | None = None, **options: Any) -> Run:
    """Resumes the distributed run in `directory` from its last checkpoint; other settings stay the same."""

    with ExitStack() as opened:

        def prepare(given: DistributedOptions) -> MakeDriver:
            _check(given)
            opened.enter_context(_connected(given))
            return functools.partial(RayTraining, given)

        return resume_with_workers(directory, changes or {}, options, prepare)


def _connected(options: DistributedOptions) -> AbstractContextManager[Any]:
    return connected(options.settings.address, options.workers * options.settings.worker_cpus)


def _connected_for(workload: Workload, options: DistributedOptions) -> AbstractContextManager[Any]:
    """The connection to the cluster, before data are loaded that Ray may read: Ray Data would start another cluster."""
    name = parse(workload.data).name
    return _connected(options) if name == "ray-data" or name not in MODULES else nullcontext()


def _check(options: DistributedOptions) -> None:
    import_ray()
    options.check("ray")
    check_faults(options.faults, range(options.workers))
