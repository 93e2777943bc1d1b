"""Writes the curves of a training for TensorBoard, one point per epoch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import torch

from paceline.errors import OutputError, StrategyError
from paceline.learning_rate import parse_schedule
from paceline.output_directory import writable
from paceline.reporting.event_file import FILES, EventFile
from paceline.step.optimizers import Rule
from paceline.step.schedule import learning_rate
from paceline.strategy.layout import PhaseLayout
from paceline.strategy.server_optimizer import server_optimizer
from paceline.training.run import Epoch, Run
from paceline.training.watcher import Progress


def check_writable(directory: Path) -> None:
    """Raises an error before any work is done if events cannot be written there. Creates nothing."""
    with writable(f"`tensorboard={str(directory)!r}`"):
        near = next(place for place in (directory, *directory.parents) if place.exists())
        if not near.is_dir():
            raise OutputError(f"`tensorboard={str(near)!r}` is a file: choose a directory")
        TemporaryFile(dir=near).close()


def check_unused(directory: Path) -> None:
    """Raises an error if there are events: two runs would be drawn as one."""
    if any(directory.glob(FILES)):
        raise OutputError(f"`tensorboard={str(directory)!r}` holds the events of another run: choose another directory")


class TensorBoard:
    """A training watcher that writes events into `directory`, which is one run for TensorBoard.

    Hyper-parameters are those of the workload and strategy, and `settings`. Runs of one `group` are repetitions.
    """

    def __init__(self, directory: Path, settings: Mapping[str, Any] | None = None, group: str = "") -> None:
        self.directory, self.settings, self.group = directory, settings or {}, group
        self.file: EventFile | None = None
        self.updates, self.seconds = 0, 0.0  # at the end of the last epoch

    def __enter__(self) -> TensorBoard:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if self.file is None:
            return
        with self.file:
            try:
                self.file.ended(kind is None)
            except OutputError:
                if kind is None:  # otherwise the error that ended the run is reported
                    raise

    def begun(self, run: Run, notes: list[str]) -> None:
        self.file = EventFile(self.directory)
        settings = {**hyperparameters_of(run), **self.settings}
        self.file.hyper_parameters({name: value for name, value in settings.items() if value is not None}, self.group)
        self.file.begin_at(run.updates + 1)
        self.updates, self.seconds = run.updates, trained_s(run)

    def advanced(self, progress: Progress) -> None:
        pass

    def finished_epoch(self, epoch: Epoch, run: Run) -> None:
        assert self.file is not None
        updates, seconds = updates_at_end(epoch, run), trained_s(run)
        real = run.distribution is not None and not run.is_simulated
        took_s = epoch.wall_s if real else seconds - self.seconds
        figures = {
            "loss/train": epoch.loss,
            "loss/test": epoch.test_loss,
            "accuracy/train": epoch.train_accuracy,
            "accuracy/test": epoch.test_accuracy,
            "learning_rate": last_rate(epoch, run),
            "time/epoch_s": epoch.wall_s,
            "speed/samples_per_s": epoch.samples_per_s,
            "speed/updates_per_s": (updates - self.updates) / took_s if took_s > 0 else math.nan,
        }
        if run.distribution is not None:
            figures["staleness/mean"] = run.distribution.ledger.mean_staleness
            if run.is_simulated:
                figures["time/virtual_s"] = seconds
        self.file.scalars(updates, figures)
        self.updates, self.seconds = updates, seconds


def updates_at_end(epoch: Epoch, run: Run) -> int:
    """Updates until the end of the epoch; workers continue with later epochs during validation."""
    found = run.distribution
    if found is None:
        return run.updates
    if run.points:
        return run.points[-1].updates
    applied = found.ledger.applied_by_epoch
    return found.ledger.updates * sum(applied[: epoch.epoch]) // max(1, sum(applied))


def trained_s(run: Run) -> float:
    """Training time on the driver's clock, real or simulated."""
    if run.distribution is None:
        return run.train_s
    return run.points[-1].seconds if run.points else run.distribution.seconds


def last_rate(epoch: Epoch, run: Run) -> float:
    """The learning rate of the epoch's last step; NaN if phases have their own rules."""
    if run.workload.phases or run.stages:
        return math.nan
    rule, found = Rule.of(run.workload), run.distribution
    if found is not None and not found.strategy.make_exchange.local_optimizer:
        try:
            rule = server_optimizer(found.strategy, PhaseLayout(rule, ()), torch.float32).rule
        except StrategyError:  # a custom one with its own schedule: it cannot be made without parameters
            return math.nan
    steps = run.updates if found is None else sum(found.ledger.applied_by_epoch[: epoch.epoch])
    an_epoch = max(1, steps // epoch.epoch)
    last, schedule = epoch.epoch * an_epoch - 1, parse_schedule(rule.schedule)
    return learning_rate(rule.lr, schedule, last, an_epoch, run.workload.epochs)


def hyperparameters_of(run: Run) -> dict[str, Any]:
    found = dict(vars(run.workload))
    if run.distribution is not None:
        strategy = run.distribution.strategy.name
        found |= {"strategy": strategy, "workers": run.distribution.workers, "driver": run.distribution.driver}
    return found
