"""The life of a distributed run with any driver: prepare, train, validate, checkpoint, record, resume, fail."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from paceline import data, record, user_code
from paceline.data.dataset import Dataset
from paceline.errors import CheckpointError, Interrupted, PacelineError, WorkloadError
from paceline.step.build import load_data
from paceline.step.tally import Score
from paceline.strategy.distribution import ValidationPoint
from paceline.strategy.event_record import EVENTS
from paceline.trace import Recorder, Trace
from paceline.training.checkpoint import Checkpoint, load_parameters, save_checkpoint
from paceline.training.directory import RunDirectory
from paceline.training.driver import DistributedOptions, Driver, MakeDriver
from paceline.training.ending import recorded_end
from paceline.training.failures import explained
from paceline.training.flat_state import named_parameters
from paceline.training.outcome import chance_accuracy, warnings_of
from paceline.training.run import Epoch, Run
from paceline.training.stopping import StopRequest
from paceline.training.validation_interval import parse_interval
from paceline.training.watcher import Progress, Silent, Watcher
from paceline.workload import Workload

CHECKPOINT_SHARE = 0.02
"""Checkpoints may take this much of the time."""


@contextlib.contextmanager
def prepared(
    workload: Workload, options: DistributedOptions, make: MakeDriver, directory: RunDirectory | None,
    progress: data.Progress | None, watcher: Watcher | None,
) -> Iterator[DistributedRun]:  # fmt: skip
    """A run that is ready to train; its directory, if it has one, is released at the end."""
    with contextlib.ExitStack() as stack:
        if directory is not None:
            stack.callback(directory.close)
        recorder = Recorder()
        with recorder.span("load"), explained(workload):
            dataset = load_data(workload, options.cache, progress)
        with explained(workload), recorder.span("prepare"):
            driver = make(workload, dataset, options, recorder)
        stack.callback(driver.close)
        with explained(workload):
            yield DistributedRun(
                workload, dataset, options, driver, recorder, watcher or Silent(), directory.path if directory else None
            )


def check_not_importing() -> None:
    module = user_code.importing()
    if module:
        raise WorkloadError(f'importing {module} starts training; put that under: if __name__ == "__main__":')


class DistributedRun:
    def __init__(
        self, workload: Workload, dataset: Dataset, options: DistributedOptions, driver: Driver, recorder: Recorder,
        watcher: Watcher, directory: Path | None,
    ) -> None:  # fmt: skip
        self.options, self.driver, self.recorder, self.watcher = options, driver, recorder, watcher
        self.dataset, self.directory = dataset, directory
        self.stop = StopRequest()
        self.every = parse_interval(options.validate_every)
        self.points: list[ValidationPoint] = []
        self.wall_before_s = 0.0
        self.saved_at_s, self.saving_s = 0.0, 0.0
        self._next_validation = self.every.amount
        self.run = Run(
            workload=workload,
            conditions=driver.conditions,
            step=driver.step,
            parameters=sum(p.numel() for p in driver.learner.parts.network.parameters()),
            data=driver.data,
            classes=len(dataset.classes),
            chance_accuracy=chance_accuracy(dataset),
        )

    # From its beginning to its end

    def restore(self, checkpoint: Checkpoint, place: Path) -> None:
        if self._samples() != checkpoint.samples:
            before, now = (f"{train:,} + {test:,}" for train, test in (checkpoint.samples, self._samples()))
            raise CheckpointError(f"{place} is of {before} samples, {self.run.workload.data} now has {now}")
        load_parameters(self.driver.learner.parts.network, checkpoint, place)
        before_run: Run = record.from_json(Run, json.loads(checkpoint.record), "record")
        self.driver.restore(checkpoint, before_run, str(place))
        self.wall_before_s = before_run.wall_s
        if before_run.distribution is not None:
            self.points = list(before_run.distribution.points)
        self.run = replace(self.run, epochs=before_run.epochs, resumed=before_run.resumed + 1)
        (place / EVENTS).unlink(missing_ok=True)  # what was recorded is only about the part before

    def train(self) -> Run:
        with self.stop, recorded_end(self._record_end):
            self.update_record("running")
            if self.driver.resumable:
                self.save()
            self.driver.run(self)
            self.update_record("finished")
            self.save()
            self.update_record("finished")  # with the time the last checkpoint took
            self._save_events()
        return self.run

    def _record_end(self, status: str, error: str) -> None:
        if self.directory is None or self.directory.exists():  # one that was deleted is not brought back
            self.run = replace(self.run, error=error)
            self.update_record(status)

    def check_stop(self) -> None:
        """Ends the run in good order if Ctrl-C or SIGTERM asked for it."""
        if not self.stop.made:
            return
        found = self.driver.distribution()
        seconds = f" and {found.seconds:g} virtual seconds" * (not self.driver.resumable)
        where = f"stopped in epoch {len(self.run.epochs) + 1} after update {found.updates}{seconds}"
        if self.directory is None:
            raise Interrupted(f"{where}; nothing was kept, since no directory was given")
        if not self.driver.resumable:
            raise Interrupted(f"{where}; what was reached is in {self.directory}; start it again to repeat it")
        self.save()
        raise Interrupted(f"{where}; continue with: paceline train --resume {self.directory}")

    # What a driver reports

    def begun(self) -> None:
        self.watcher.begun(self.run, self.driver.notes)

    def progressed(self, progress: Progress) -> None:
        self.watcher.advanced(progress)

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

    def validate(self, parameters: Tensor) -> Score:
        self.driver.learner.show(parameters)
        return self.driver.evaluator.score()

    def validated(self, epoch: float, seconds: float, updates: int, test: Score, train_loss: float = math.nan) -> None:
        self.points.append(ValidationPoint(epoch, seconds, updates, train_loss, test.loss, test.accuracy))

    def finished_epoch(self, epoch: Epoch, updates: int) -> None:
        """An epoch is done, with so many updates; others may have been made since."""
        self.run = replace(self.run, epochs=(*self.run.epochs, epoch))
        self.update_record("running")
        self.watcher.finished_epoch(epoch, replace(self.run, updates=updates))

    # What is kept

    def update_record(self, status: str) -> None:
        tested = next((e for e in reversed(self.run.epochs) if not math.isnan(e.test_loss)), None)
        distribution = replace(self.driver.distribution(), points=tuple(self.points))
        train_s, samples_per_s = self.driver.timing()
        self.run = replace(
            self.run,
            status=status,
            wall_s=self.wall_before_s + self.recorder.now(),
            train_s=train_s,
            samples_per_s=samples_per_s,
            updates=distribution.updates,
            test_accuracy=tested.test_accuracy if tested else math.nan,
            test_top_accuracy=tested.test_top_accuracy if tested else math.nan,
            test_loss=tested.test_loss if tested else math.nan,
            distribution=distribution,
        )
        if status != "running":
            spans = (*self.recorder.spans, *self.driver.trace())
            self.run = replace(self.run, trace=Trace(spans), warnings=warnings_of(self.run))
        if self.directory is not None:
            record.save(self.run, self.directory / "record.json")

    def save_if_due(self, patience: float = 1.0) -> None:
        """When the last checkpoint is old enough, and rarely enough that checkpoints cost little."""
        every_s = self.options.checkpoint_every_s
        pause_s = every_s and max(every_s, self.saving_s / CHECKPOINT_SHARE)
        if self.recorder.now() - self.saved_at_s >= patience * pause_s:
            self.save()

    def save(self) -> None:
        if self.directory is None:
            return
        with self.recorder.span("checkpoint"):
            start_s = self.recorder.now()
            snapshot = self.driver.snapshot()
            self.driver.report_epochs(self, snapshot.epochs_done)
            distribution = replace(self.driver.distribution(), points=tuple(self.points))
            so_far = replace(
                self.run, wall_s=self.wall_before_s + start_s, updates=snapshot.version,
                epochs=self.run.epochs[: snapshot.epochs_done], distribution=distribution,
            )  # fmt: skip
            learner = self.driver.learner
            save_checkpoint(
                Checkpoint(
                    workload=self.run.workload,
                    step_kind=self.driver.step.kind,
                    epoch=snapshot.epochs_done,
                    next_step=0,
                    updates=snapshot.version,
                    samples=self._samples(),
                    parameters=named_parameters(learner.parts.network, snapshot.parameters, learner.local),
                    optimizer=snapshot.state,
                    score=dataclasses.asdict(snapshot.score),
                    record=json.dumps(record.to_json(so_far)),
                ),
                self.directory,
            )
        self.saved_at_s = self.recorder.now()
        self.saving_s = self.saved_at_s - start_s

    def _save_events(self) -> None:
        if self.options.record_events and self.directory is not None:
            events = self.driver.events()
            if events is None:
                raise PacelineError("the events of this run were not recorded")
            record.save(events, self.directory / EVENTS)

    def _samples(self) -> tuple[int, int]:
        return len(self.dataset.train), len(self.dataset.test)
