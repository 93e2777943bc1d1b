"""Starts and resumes trainings: the one place where settings become a driver, in this process or with workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.errors import StrategyError, WorkloadError
from paceline.settings import pick
from paceline.strategy.strategy import Strategy
from paceline.training.distributing import build_cluster, build_strategy
from paceline.training.limits import check_workers
from paceline.training.settings import SCHEMA, ClusterSettings, DriverSettings, StrategySettings, keys_of

if TYPE_CHECKING:
    from paceline.training.measured_training import TrainingClock
    from paceline.training.run import Run
    from paceline.workload import Workload


CLUSTER_KEYS, DRIVER_KEYS = keys_of(ClusterSettings), keys_of(DriverSettings)
STRATEGY_KEYS = keys_of(StrategySettings, Strategy)
DISTRIBUTION_KEYS = frozenset((*STRATEGY_KEYS, *CLUSTER_KEYS, *DRIVER_KEYS))
"""Every setting that says how a training is distributed; all others are of the workload."""
FOR_ONE_PROCESS = tuple(key for key in DRIVER_KEYS if "alone" in SCHEMA[key].runs)
"""Settings of a driver that training in this process has, too."""
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

    @staticmethod
    def of(settings: Mapping[str, Any], *, measuring: bool = False) -> Setup:
        """Of settings by name, checked together before anything is loaded."""
        given = {key: value for key, value in settings.items() if value is not None or key not in _ABSENT}
        if given.get("driver") == "auto":
            del given["driver"]
        words = DriverSettings(**{"driver": "local", **pick(DriverSettings, given)})
        cluster = ClusterSettings(**pick(ClusterSettings, given))
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
        return self.strategy is not None and self.driver.driver == "local"

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
        options |= vars(self.driver)
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
    from paceline.training.resuming import WITH_WORKERS, resumable_directory

    given = {key: value for key, value in settings.items() if value is not None and value != []}
    for key in given:
        if key not in DRIVER_KEYS or key == "record_events" or (key == "driver" and given[key] not in WITH_WORKERS):
            raise StrategyError(f"`{key}` is for new runs: a resumed one continues as it was")
    options |= {"changes": dict(changes), **pick(DriverSettings, given)}
    kind = load_checkpoint(resumable_directory(directory)).step_kind
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


def _check_together(given: Mapping[str, Any], driver: str, measuring: bool) -> None:
    if measuring and driver != "local":
        raise StrategyError(
            "`measure` samples real workers from the beginning of a run: it needs `driver='local'` and a new run"
        )
    for key in given:
        if driver not in SCHEMA[key].runs:
            fitting = next(name for name in ("local", "ray", "virtual") if name in SCHEMA[key].runs)
            raise StrategyError(f"`{key}` {PURPOSES[fitting]}: it needs `driver={fitting!r}`")
