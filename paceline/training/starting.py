"""Starts and resumes trainings: the one place where settings become a driver, in this process or with workers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.errors import StrategyError, WorkloadError, nearest
from paceline.strategy.strategy import Strategy
from paceline.training.distributing import DRIVERS, REAL_ONLY, ClusterWords, DriverWords, StrategyWords
from paceline.training.driver import CHECKPOINT_EVERY_S
from paceline.training.limits import check_workers

if TYPE_CHECKING:
    from paceline import data
    from paceline.training.measured_training import TrainingClock
    from paceline.training.run import Run
    from paceline.training.watcher import Watcher
    from paceline.workload import Workload


def _names(record: type) -> tuple[str, ...]:
    return tuple(f.name for f in dataclasses.fields(record))


CLUSTER_KEYS = _names(ClusterWords)
DRIVER_KEYS = _names(DriverWords)
STRATEGY_KEYS = tuple(name for name in _names(StrategyWords) if name != "fields")
FIELD_KEYS = tuple(name for name in _names(Strategy) if name not in (*STRATEGY_KEYS, "name"))
"""Of a strategy, beyond those that have a word of their own."""
DISTRIBUTION_KEYS = frozenset((*STRATEGY_KEYS, *FIELD_KEYS, *CLUSTER_KEYS, *DRIVER_KEYS))
"""Every setting that says how a training is distributed; all others are of the workload."""
FOR_ONE_PROCESS = ("validate_every",)
"""Settings of a driver that training in this process has, too."""
_ABSENT = ("strategy", "workers", "driver")
"""Settings for which None means that they were not given."""


def strategy_of(settings: Mapping[str, Any]) -> tuple[Strategy, int]:
    """The strategy that settings describe, and how many workers carry it out."""
    words = {key: value for key, value in settings.items() if key in STRATEGY_KEYS and value is not None}
    fields = {key: value for key, value in settings.items() if key in FIELD_KEYS or (key == "groups" and value is None)}
    return StrategyWords(**words, fields=fields).build()


@dataclass(frozen=True)
class Setup:
    """How a training is carried out: which strategy, if any, with how many workers, on what."""

    strategy: Strategy | None = None
    """None: one process, without a strategy."""
    workers: int = 1
    cluster: ClusterWords = field(default_factory=ClusterWords)
    driver: DriverWords = field(default_factory=DriverWords)

    @staticmethod
    def of(settings: Mapping[str, Any], *, measuring: bool = False) -> Setup:
        """Of settings by name, checked together before anything is loaded."""
        given = {key: value for key, value in settings.items() if value is not None or key not in _ABSENT}
        if given.get("driver") == "auto":
            del given["driver"]
        check_driver_name(given.get("driver"))
        words = DriverWords(**{key: value for key, value in given.items() if key in DRIVER_KEYS})
        cluster = ClusterWords(**{key: value for key, value in given.items() if key in CLUSTER_KEYS})
        distributed = {key: value for key, value in given.items() if key not in FOR_ONE_PROCESS}
        if not distributed or distributed == {"workers": 1}:
            return Setup(driver=words)
        if not given.keys() & {"strategy", "workers", "groups"}:
            raise StrategyError(
                f"{option(next(iter(distributed)))} needs --workers or a --strategy, as --strategy downpour"
            )
        strategy, workers = strategy_of(given)
        check_workers(workers, words.driver)
        cluster.build().check(workers)
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
        out: Path | None = None,
        cache: Path | None = None,
        progress: data.Progress | None = None,
        watcher: Watcher | None = None,
        step: str = "auto",
        clock: TrainingClock | None = None,
        measure: Path | None = None,
        log_placement: bool = False,
        checkpoint_every_s: float | None = CHECKPOINT_EVERY_S,
    ) -> Run:
        """Trains; `clock` measures the layers of a training in this process, workers write theirs into `measure`."""
        shared: dict[str, Any] = {"out": out, "cache": cache, "progress": progress, "watcher": watcher}
        if self.strategy is None:
            from paceline.training import trainer

            return trainer.run(
                workload, step=step, clock=clock, log_placement=log_placement, checkpoint_every_s=checkpoint_every_s,
                validate_every=self.driver.validate_every, **shared,
            )  # fmt: skip
        if step != "auto" or log_placement:
            raise WorkloadError("--step and --log-placement are for training in one process, without a strategy")
        shared |= {"workers": self.workers, **self.driver.options()}
        if self.driver.driver == "virtual":
            from paceline.training.virtual_run import run_virtual

            return run_virtual(workload, self.strategy, cluster=self.cluster.build(), **shared)
        from paceline.training.drivers.local import launcher

        if checkpoint_every_s is not None:
            shared["checkpoint_every_s"] = checkpoint_every_s
        return launcher.run(workload, self.strategy, measure=measure, **shared)


def resume_training(
    directory: Path,
    settings: Mapping[str, Any],
    changes: Mapping[str, Any],
    *,
    cache: Path | None = None,
    progress: data.Progress | None = None,
    watcher: Watcher | None = None,
    clock: TrainingClock | None = None,
    checkpoint_every_s: float = CHECKPOINT_EVERY_S,
) -> Run:
    """Resumes the run in `directory`; `settings` are those of a driver that may change, `changes` the workload's."""
    from paceline.training.drivers.local import launcher

    given = {key: value for key, value in settings.items() if value is not None and value != []}
    for key in given:
        if key not in DRIVER_KEYS or key in ("driver", "record_events"):
            raise StrategyError(f"{option(key)} is for new runs: a resumed one continues as it was")
    words = DriverWords(**given)
    shared: dict[str, Any] = {
        "changes": dict(changes), "cache": cache, "progress": progress, "watcher": watcher,
        "checkpoint_every_s": checkpoint_every_s,
    }  # fmt: skip
    if launcher.is_distributed(directory):
        if clock is not None:
            raise WorkloadError("--measure samples workers from the beginning of a run: this one continues without it")
        return launcher.resume(directory, **shared, **words.options(resuming=True, given=list(given)))
    for key in given:
        if key not in FOR_ONE_PROCESS:
            raise StrategyError(f"{option(key)} is for distributed runs, and the one in {directory} is of one process")
    from paceline.training import trainer

    return trainer.resume(directory, clock=clock, validate_every=words.validate_every, **shared)


def check_driver_name(driver: Any) -> None:
    known = ("auto", *DRIVERS)
    if driver is not None and driver not in known:
        raise StrategyError(f"--driver {driver!r} is unknown: {nearest(str(driver), known)}")


def option(key: str) -> str:
    """A setting as the command line has it."""
    return f"--{key.replace('_', '-')}"


def _check_together(given: Mapping[str, Any], driver: str, measuring: bool) -> None:
    if measuring and driver == "virtual":
        raise StrategyError(
            "--measure samples real workers from the beginning of a run: it needs --driver local and a new run"
        )
    for key in given:
        if driver == "local" and key in CLUSTER_KEYS:
            raise StrategyError(f"{option(key)} is simulated: it needs --driver virtual")
        if driver == "virtual" and key in REAL_ONLY:
            raise StrategyError(f"{option(key)} is for real workers: it needs --driver local")
