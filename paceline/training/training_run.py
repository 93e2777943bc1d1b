"""The life of a run with any driver: prepare, train, validate, checkpoint, record, resume, fail."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from paceline import record, user_code
from paceline.busy_machine import MachineWatch
from paceline.data.dataset import Dataset
from paceline.errors import CheckpointError, Interrupted, PacelineError, RecordError, WorkloadError
from paceline.networks.criterion import metric_of_network
from paceline.networks.learned import HasFigure
from paceline.output_directory import claimed
from paceline.step.build import load_data
from paceline.step.failures import explained
from paceline.step.metrics import metric_name
from paceline.step.phase import never_trained, stages_of
from paceline.step.placement import cpu_settings_restored
from paceline.step.tally import Score
from paceline.strategy.event_record import EVENTS
from paceline.trace import Recorder, Trace
from paceline.training.checkpoint import Checkpoint, load_checkpoint, load_parameters, save_checkpoint
from paceline.training.driver import DistributedOptions, Driver, MakeDriver, RunOptions
from paceline.training.ending import recorded_end
from paceline.training.outcome import chance_accuracy, warnings_of
from paceline.training.resuming import claimed_to_resume, resumed_distribution, resumed_workload
from paceline.training.run import Epoch, Run, ValidationPoint
from paceline.training.stopping import StopRequest
from paceline.training.validation_interval import parse_interval
from paceline.training.watcher import Silent
from paceline.trust import check_code
from paceline.workload import Workload

CHECKPOINT_SHARE = 0.02
"""Checkpoints may take this much of the time."""

Plan = Callable[[Checkpoint, Path], tuple[Workload, RunOptions, MakeDriver]]
"""From the checkpoint in a directory to how its run is resumed."""


def train_new(workload: Workload, options: RunOptions, make: MakeDriver) -> Run:
    module = user_code.importing()
    if module:
        raise WorkloadError(f'importing {module} starts training; put that under: if __name__ == "__main__":')
    with claimed(options.out) as directory, _prepared(workload, options, make, directory) as run:
        return run.train()


def resume_from(directory: str | Path, plan: Plan) -> Run:
    """Resumes the run in `directory` from its last checkpoint."""
    with claimed_to_resume(directory) as place:
        checkpoint = load_checkpoint(place)
        check_code({**vars(checkpoint.workload), **_strategy_of(checkpoint)}, place, checkpoint.made_in)
        workload, options, make = plan(checkpoint, place)
        with _prepared(workload, options, make, place) as run:
            run.restore(checkpoint, place)
            return run.train()


def resume_with_workers(
    directory: str | Path, changes: dict[str, Any], options: dict[str, Any],
    prepare: Callable[[DistributedOptions], MakeDriver],
) -> Run:  # fmt: skip
    """Resumes the distributed run in `directory`; what `options` do not give is as before. `prepare` checks them."""

    def plan(checkpoint: Checkpoint, place: Path) -> tuple[Workload, RunOptions, MakeDriver]:
        workload = resumed_workload(checkpoint, changes, place)
        strategy, workers, threads = resumed_distribution(checkpoint, place)
        given = DistributedOptions.of({"server_threads": threads, **options}, strategy=strategy, workers=workers)
        return workload, given, prepare(given)

    return resume_from(directory, plan)


def _strategy_of(checkpoint: Checkpoint) -> dict[str, Any]:
    """The strategy of a distributed run, as it was saved."""
    saved = checkpoint.optimizer.get("strategy")
    return saved if isinstance(saved, dict) else {}


@contextlib.contextmanager
def _prepared(
    workload: Workload, options: RunOptions, make: MakeDriver, directory: Path | None
) -> Iterator[TrainingRun]:
    recorder = Recorder()
    with explained(workload), cpu_settings_restored(), torch.inference_mode(False), torch.enable_grad():
        with recorder.span("load"):
            dataset = load_data(workload, options.cache, options.progress)
        with recorder.span("prepare"):
            driver = make(workload, dataset, recorder)
        with contextlib.closing(driver):
            yield TrainingRun(workload, dataset, options, driver, recorder, directory)


class TrainingRun:
    def __init__(
        self, workload: Workload, dataset: Dataset, options: RunOptions, driver: Driver, recorder: Recorder,
        directory: Path | None,
    ) -> None:  # fmt: skip
        self.options, self.driver, self.recorder, self.watcher = options, driver, recorder, options.watcher or Silent()
        self.directory = directory
        self.samples = len(dataset.train), len(dataset.test)
        self.stop = StopRequest()
        self.every = parse_interval(options.settings.validate_every)
        self.wall_before_s = 0.0
        self.saved_at_s, self.saving_s = 0.0, 0.0
        self._next_validation = self.every.amount
        self.machine = MachineWatch(driver.conditions.busy)
        self.never_trained = never_trained(driver.phases, workload)
        driver.notes.extend(self.never_trained)
        classifies = metric_of_network(driver.network) is None
        self.run = Run(
            workload=workload,
            conditions=driver.conditions,
            step=driver.step,
            parameters=sum(p.numel() for p in driver.network.parameters()),
            data=driver.data,
            metric=metric_name(workload, driver.network),
            classes=len(dataset.classes) if classifies else 0,
            chance_accuracy=chance_accuracy(dataset) if classifies else 0.0,
            has_figure=isinstance(driver.network, HasFigure),
            stages=stages_of(driver.phases, workload.epochs),
            placement=dict(driver.placement),
            directory=str(directory.resolve()) if directory is not None else "",
        )

    # From its beginning to its end

    def restore(self, checkpoint: Checkpoint, place: Path) -> None:
        if self.samples != checkpoint.samples:
            before, now = (f"{train:,} + {test:,}" for train, test in (checkpoint.samples, self.samples))
            raise CheckpointError(f"{place} is of {before} samples, {self.run.workload.data} now has {now}")
        load_parameters(self.driver.network, checkpoint, place)
        try:
            before_run: Run = record.from_json(Run, json.loads(checkpoint.record), "record")
            self.driver.restore(checkpoint, before_run)
        except (KeyError, ValueError, TypeError, RuntimeError, IndexError) as error:
            if isinstance(error, PacelineError) and not isinstance(error, RecordError):
                raise
            raise CheckpointError(
                f"{place} does not fit this run, its step was {checkpoint.step_kind}: {error}"
            ) from error
        self.wall_before_s = before_run.wall_s
        self.validation_is_due(checkpoint.updates, before_run.train_s)  # those before have been made
        self.run = replace(
            self.run, step=self.driver.step, epochs=before_run.epochs, points=before_run.points,
            resumed=before_run.resumed + 1, placement=before_run.placement,
            conditions=replace(self.run.conditions, made_in=before_run.conditions.made_in),
        )  # fmt: skip
        (place / EVENTS).unlink(missing_ok=True)  # what was recorded is only about the part before

    def train(self) -> Run:
        with self.stop, recorded_end(self._record_end):
            self.update_record("running")
            if self.driver.resumable:
                self.save()
            self.driver.run(self)
            self.run = replace(self.run, conditions=replace(self.run.conditions, busy=self.machine.said()))
            self.update_record("finished")
            self.save()
            self.update_record("finished")  # with the time the last checkpoint took
            events = self.driver.events() if self.options.settings.record_events else None
            if events is not None and self.directory is not None:
                record.save(events, self.directory / EVENTS)
        return self.run

    def _record_end(self, status: str, error: str) -> None:
        if self.directory is None or self.directory.exists():  # one that was deleted is not brought back
            self.run = replace(self.run, error=error)
            self.update_record(status)

    def check_stop(self) -> None:
        """Ends the run in good order if Ctrl-C or SIGTERM asked for it."""
        if not self.stop.made:
            return
        where = f"stopped in epoch {len(self.run.epochs) + 1} after {self.driver.where()}"
        if self.directory is None:
            raise Interrupted(f"{where}; nothing was saved, because no directory was given")
        if not (self.driver.resumable and self.keeps_checkpoints):
            raise Interrupted(f"{where}; the results so far are in {self.directory}; start it again to repeat it")
        self.save()
        raise Interrupted(f"{where}; continue with: `paceline.resume({str(self.directory)!r})`")

    # What a driver reports; progress it reports to the watcher itself

    def validates(self, epoch: int) -> bool:
        """Whether an epoch is validated when it is done; the last always is."""
        last = epoch + 1 == self.run.workload.epochs
        return last or self.every.unit != "epochs" or (epoch + 1) % int(self.every.amount) == 0

    def validation_is_due(self, updates: int, seconds: float) -> bool:
        """Whether it is time for a validation between the ends of epochs; then the next one is set."""
        reached = updates if self.every.unit == "updates" else seconds
        if self.every.unit == "epochs" or reached < self._next_validation:
            return False
        self._next_validation = self.every.amount * (math.floor(reached / self.every.amount) + 1)
        return True

    def updates_to_validation(self, updates: int) -> int:
        """How many updates may be made until the next validation; any number where seconds or epochs count."""
        every = int(self.every.amount)
        return every - updates % every if self.every.unit == "updates" else sys.maxsize

    def validated(self, epoch: float, seconds: float, updates: int, test: Score, train_loss: float = math.nan) -> None:
        point = ValidationPoint(epoch, seconds, updates, train_loss, test.loss, test.accuracy, test.metric)
        self.run = replace(self.run, points=(*self.run.points, point))

    def finished_epoch(self, epoch: Epoch, updates: int) -> None:
        """An epoch is done after this many updates; others may have been made since."""
        self.run = replace(self.run, epochs=(*self.run.epochs, epoch))
        self.update_record("running")
        self.watcher.finished_epoch(epoch, replace(self.run, updates=updates))

    # What is kept

    def update_record(self, status: str) -> None:
        tested = next((e for e in reversed(self.run.epochs) if not math.isnan(e.test_loss)), None)
        train_s, samples_per_s = self.driver.timing()
        driver_spans = self.driver.trace() if status != "running" else []
        self.run = replace(
            self.run,
            status=status,
            wall_s=self.wall_before_s + self.recorder.now(),
            train_s=train_s,
            samples_per_s=samples_per_s,
            updates=self.driver.updates,
            skipped_updates=self.driver.skipped_updates,
            test_accuracy=tested.test_accuracy if tested else math.nan,
            test_top_accuracy=tested.test_top_accuracy if tested else math.nan,
            test_loss=tested.test_loss if tested else math.nan,
            test_metric=tested.test_metric if tested else math.nan,
            distribution=self.driver.distribution(),
            division=self.driver.division(),
            trace=Trace((*self.recorder.spans, *driver_spans)),
        )
        left_out = self.never_trained if status == "finished" else ()
        self.run = replace(self.run, warnings=(*warnings_of(self.run), *left_out))
        if self.directory is not None:
            record.save(self.run, self.directory / "record.json")

    @property
    def keeps_checkpoints(self) -> bool:
        return self.directory is not None and self.options.checkpoint_every_s is not None

    def save_if_due(self, patience: float = 1.0) -> None:
        """When the last checkpoint is old enough, and rarely enough that checkpoints cost little."""
        every_s = self.options.checkpoint_every_s
        pause_s = every_s and max(every_s, self.saving_s / CHECKPOINT_SHARE)
        if pause_s is not None and self.recorder.now() - self.saved_at_s >= patience * pause_s:
            self.save()

    def save(self) -> None:
        if self.directory is None or not self.keeps_checkpoints:
            return
        with self.recorder.span("checkpoint"):
            start_s = self.recorder.now()
            snapshot = self.driver.snapshot()
            self.driver.report_epochs(self, snapshot.epochs_done)
            so_far = replace(
                self.run, wall_s=self.wall_before_s + start_s, train_s=self.driver.timing()[0],
                updates=snapshot.updates, epochs=self.run.epochs[: snapshot.epochs_done],
                distribution=self.driver.distribution(),
            )  # fmt: skip
            save_checkpoint(
                Checkpoint(
                    workload=self.run.workload,
                    step_kind=self.driver.step.kind,
                    epoch=snapshot.epochs_done,
                    next_step=snapshot.next_step,
                    updates=snapshot.updates,
                    samples=self.samples,
                    parameters=snapshot.parameters,
                    optimizer=snapshot.state,
                    score=dataclasses.asdict(snapshot.score),
                    record=json.dumps(record.to_json(so_far)),
                ),
                self.directory,
            )
        self.saved_at_s = self.recorder.now()
        self.saving_s = self.saved_at_s - start_s
