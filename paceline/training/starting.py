"""Starts and resumes trainings: the one place where settings become a driver, in this process or with workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.errors import StrategyError, WorkloadError
from paceline.settings import pick
from paceline.strategy.presets import find_strategy
from paceline.strategy.strategy import Strategy
from paceline.training.distributing import build_cluster, build_strategy
from paceline.training.limits import check_workers
from paceline.training.settings import (
    SCHEMA,
    ClusterSettings,
    DriverSettings,
    ParallelSettings,
    StrategySettings,
    keys_of,
)

if TYPE_CHECKING:
    from paceline.training.measured_training import TrainingClock
    from paceline.training.run import Run
    from paceline.workload import Workload


CLUSTER_KEYS, DRIVER_KEYS, PARALLEL_KEYS = keys_of(ClusterSettings), keys_of(DriverSettings), keys_of(ParallelSettings)
STRATEGY_KEYS = keys_of(StrategySettings, Strategy)
DISTRIBUTION_KEYS = frozenset((*STRATEGY_KEYS, *CLUSTER_KEYS, *DRIVER_KEYS, *PARALLEL_KEYS))
"""Every setting that says how a training is distributed; all others are of the workload."""
FOR_ONE_PROCESS = tuple(key for key in DRIVER_KEYS if "alone" in SCHEMA[key].runs)
"""Settings of a driver that training in this process has, too."""
FOR_DIVIDED = (*FOR_ONE_PROCESS, "stopped_timeout", "idle_timeout", "busy_timeout", "start_timeout")
"""Those that processes which divide a network have."""
PURPOSES = {"local": "is for real workers", "ray": "is for a Ray cluster", "virtual": "is simulated"}
_ABSENT = ("strategy", "workers", "driver")
"""Settings for which None means that they were not given."""


@dataclass(frozen=True)
class Setup:
    """How a training is carried out: which strategy, if any, with how many workers, on what."""

    strategy: Strategy | None = None
    """None: one process, without a strategy."""
    workers: int = 1
    cluster: ClusterSettings = field(default_factory=ClusterSettings)
    driver: DriverSettings = field(default_factory=DriverSettings)
    parallel: ParallelSettings = field(default_factory=ParallelSettings)
    """With workers, each of them is a copy of the network that is divided like this."""

    @staticmethod
    def of(settings: Mapping[str, Any], *, measuring: bool = False) -> Setup:
        """Of settings by name, checked together before anything is loaded."""
        given = {key: value for key, value in settings.items() if value is not None or key not in _ABSENT}
        if given.get("driver") == "auto":
            del given["driver"]
        words = DriverSettings(**{"driver": "local", **pick(DriverSettings, given)})
        cluster = ClusterSettings(**pick(ClusterSettings, given))
        parallel = ParallelSettings(**pick(ParallelSettings, given))
        given = {key: value for key, value in given.items() if key not in PARALLEL_KEYS}
        if parallel.divides:
            return Setup(None, _replicas(given, measuring), cluster, words, parallel)
        distributed = {key: value for key, value in given.items() if key not in FOR_ONE_PROCESS}
        if not distributed or distributed == {"workers": 1}:
            return Setup(driver=words)
        if not given.keys() & {"strategy", "workers", "groups"}:
            raise StrategyError(
                f"`{next(iter(distributed))}` needs `workers` or a `strategy`, e.g. `strategy='downpour'`"
            )
        strategy, workers = build_strategy(given)
        check_workers(workers, words.driver)
        build_cluster(cluster).check(workers)
        _check_together(given, words.driver, measuring)
        return Setup(strategy, workers, cluster, words)

    @property
    def with_processes(self) -> bool:
        """Whether the workers are processes of this machine."""
        return (self.strategy is not None and self.driver.driver == "local") or self.parallel.divides

    def train(
        self,
        workload: Workload,
        *,
        step: str = "auto",
        clock: TrainingClock | None = None,
        measure: Path | None = None,
        log_placement: bool = False,
        **options: Any,
    ) -> Run:
        """Trains; `clock` measures the layers of a training in this process, workers write theirs into `measure`.

        `options` are those of `paceline.training.driver.RunOptions`.
        """
        if workload.precision == "float16" and (self.strategy is not None or self.parallel.divides):
            raise WorkloadError(
                "precision 'float16' scales the loss, which is for training in one process without a strategy: "
                "use bfloat16"
            )
        options |= vars(self.driver)
        if self.parallel.divides:
            from paceline.training.drivers.model_parallel import launcher as dividing

            if step != "auto" or log_placement:
                raise WorkloadError("`step` and `log_placement` are for a network in one process: leave them out")
            return dividing.run(workload, self.parallel, replicas=self.workers, **options)
        if self.strategy is None:
            from paceline.training import trainer

            return trainer.run(workload, step=step, clock=clock, log_placement=log_placement, **options)
        if step != "auto" or log_placement:
            raise WorkloadError("`step` and `log_placement` are for training in one process, without a strategy")
        options["workers"] = self.workers
        if self.driver.driver == "ray":
            from paceline.training.drivers.ray import launcher as ray_launcher

            return ray_launcher.run(workload, self.strategy, **options)
        if self.driver.driver == "virtual":
            from paceline.training.virtual_run import run_virtual

            return run_virtual(workload, self.strategy, cluster=build_cluster(self.cluster), **options)
        from paceline.training.drivers.local import launcher

        return launcher.run(workload, self.strategy, measure=measure, **options)


def resume_training(
    directory: Path,
    settings: Mapping[str, Any],
    changes: Mapping[str, Any],
    *,
    clock: TrainingClock | None = None,
    **options: Any,
) -> Run:
    """Resumes the run in `directory`; `settings` are those of a driver that may change, `changes` the workload's."""
    from paceline.training.checkpoint import load_checkpoint
    from paceline.training.resuming import DIVIDED, WITH_WORKERS, resumable_directory

    given = {key: value for key, value in settings.items() if value is not None and value != []}
    parallel = {key: given.pop(key) for key in [*given] if key in PARALLEL_KEYS}
    for key in given:
        if key not in DRIVER_KEYS or key == "record_events" or (key == "driver" and given[key] not in WITH_WORKERS):
            raise StrategyError(f"`{key}` is for new runs: a resumed one continues as it was")
    options |= {"changes": dict(changes), **pick(DriverSettings, given)}
    checkpoint = load_checkpoint(resumable_directory(directory))
    kind = checkpoint.step_kind
    if kind in WITH_WORKERS and parallel:
        raise StrategyError(f"`{next(iter(parallel))}` is for new runs: that in {directory} has a server and workers")
    if kind == DIVIDED or parallel:
        from paceline.training.drivers.model_parallel import launcher as dividing

        if dividing.divided_as(checkpoint, parallel, directory)[0].divides:
            if clock is not None:
                raise WorkloadError("`measure` is for a network in one process: leave it out")
            return dividing.resume(directory, parallel, **options)
    if kind in WITH_WORKERS:
        if clock is not None:
            raise WorkloadError("`measure` samples workers from the beginning of a run: this one continues without it")
        driver = given.get("driver", kind)
        _check_together(given, driver, measuring=False)
        if driver == "ray":
            from paceline.training.drivers.ray import launcher as ray_launcher

            return ray_launcher.resume(directory, **options)
        from paceline.training.drivers.local import launcher

        return launcher.resume(directory, **options)
    for key in given:
        if key not in FOR_ONE_PROCESS:
            raise StrategyError(f"`{key}` is for distributed runs, and the one in {directory} is of one process")
    from paceline.training import trainer

    return trainer.resume(directory, clock=clock, **options)


def _replicas(given: Mapping[str, Any], measuring: bool) -> int:
    """Copies of a divided network: synchronous workers of this machine, and nothing else."""
    if measuring:
        raise WorkloadError("`measure` is for a network in one process or with workers, not for a divided one")
    strategy = find_strategy(given["strategy"]) if "strategy" in given else Strategy()
    is_plain = strategy == Strategy(strategy.name)
    if not is_plain or given.get("driver", "local") != "local":
        key = "driver" if is_plain else "strategy"
        raise StrategyError(
            f"pipeline, tensor and shard train synchronously, in processes of this machine: leave out "
            f"`{key}={given[key]!r}`"
        )
    for key in given:
        if key not in ("strategy", "workers", "driver") and key not in FOR_DIVIDED:
            raise StrategyError(f"`{key}` has no effect on a divided network: leave it out")
    return int(StrategySettings(workers=given.get("workers")).workers or 1)


def _check_together(given: Mapping[str, Any], driver: str, measuring: bool) -> None:
    if measuring and driver != "local":
        raise StrategyError(
            "`measure` samples real workers from the beginning of a run: it needs `driver='local'` and a new run"
        )
    for key in given:
        if driver not in SCHEMA[key].runs:
            fitting = next(name for name in ("local", "ray", "virtual") if name in SCHEMA[key].runs)
            raise StrategyError(f"`{key}` {PURPOSES[fitting]}: it needs `driver={fitting!r}`")
