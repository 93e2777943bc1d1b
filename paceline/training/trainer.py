"""Trains a workload in this process: epochs, validation, checkpoints, and stopping in good order."""

from __future__ import annotations

import dataclasses
import json
import math
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from paceline import data, record, user_code
from paceline.data.dataset import Dataset
from paceline.errors import CheckpointError, Diverged, Interrupted, PacelineError, WorkloadError
from paceline.step.build import assemble, load_data
from paceline.step.choose import make_step
from paceline.step.placement import choose_device
from paceline.step.tally import Score, Tally
from paceline.trace import Recorder, Trace
from paceline.training.checkpoint import Checkpoint, load_checkpoint, load_parameters, save_checkpoint
from paceline.training.conditions import current_conditions
from paceline.training.directory import RunDirectory
from paceline.training.ending import recorded_end
from paceline.training.evaluate import Evaluator
from paceline.training.failures import explained
from paceline.training.outcome import chance_accuracy, warnings_of
from paceline.training.placement_log import count_operations
from paceline.training.resuming import resumed_step, resumed_workload
from paceline.training.run import Epoch, Run
from paceline.training.stopping import StopRequest
from paceline.training.watcher import Progress, Silent, Watcher
from paceline.workload import Workload

if TYPE_CHECKING:  # a run that is not measured imports nothing of measuring
    from paceline.training.measured_training import TrainingClock

CHUNK_S = 0.2  # the loop looks up this often: progress, signals, checkpoints
CHECKPOINT_EVERY_S = 20.0
CHECKPOINT_SHARE = 0.02  # checkpoints may take this much of the time


def run(
    workload: Workload,
    *,
    step: str = "auto",
    out: str | Path | None = None,
    cache: Path | None = None,
    progress: data.Progress | None = None,
    watcher: Watcher | None = None,
    clock: TrainingClock | None = None,
    log_placement: bool = False,
    checkpoint_every_s: float | None = CHECKPOINT_EVERY_S,
) -> Run:
    """Trains `workload` and returns the record; with `out`, record and checkpoint are kept there.

    `progress` is told of downloads, `watcher` of the training; `clock` measures its layers. With a
    `checkpoint_every_s` of None there is no checkpoint.
    """
    module = user_code.importing()
    if module:
        raise WorkloadError(f'importing {module} starts training; put that under: if __name__ == "__main__":')
    with ExitStack() as opened:
        place = opened.enter_context(RunDirectory.claim_new(out)).path if out is not None else None
        recorder, dataset = _loaded(workload, cache, progress)
        opened.enter_context(explained(workload))
        trainer = opened.enter_context(Trainer(workload, dataset, step, recorder, watcher or Silent(), log_placement))
        trainer.checkpoint_every_s = checkpoint_every_s
        trainer.measure_with(clock)
        trainer.directory = place
        return trainer.train()


def resume(
    directory: str | Path,
    *,
    changes: dict[str, Any] | None = None,
    cache: Path | None = None,
    progress: data.Progress | None = None,
    watcher: Watcher | None = None,
    clock: TrainingClock | None = None,
    checkpoint_every_s: float = CHECKPOINT_EVERY_S,
) -> Run:
    """Resumes the run in `directory` from its last checkpoint; `clock` measures what is left of it."""
    with ExitStack() as opened:
        place = opened.enter_context(RunDirectory.claim_existing(directory)).path
        checkpoint = load_checkpoint(place)
        workload = resumed_workload(checkpoint, changes or {}, place)
        step = resumed_step(checkpoint, workload)
        recorder, dataset = _loaded(workload, cache, progress)
        opened.enter_context(explained(workload))
        trainer = opened.enter_context(Trainer(workload, dataset, step, recorder, watcher or Silent(), False))
        trainer.checkpoint_every_s = checkpoint_every_s
        trainer.restore(checkpoint, place)
        trainer.measure_with(clock)
        trainer.directory = place
        return trainer.train()


def _loaded(workload: Workload, cache: Path | None, progress: data.Progress | None) -> tuple[Recorder, Dataset]:
    """The data, and the recorder whose clock began with loading them."""
    recorder = Recorder()
    with recorder.span("load"), explained(workload):
        return recorder, load_data(workload, cache, progress)


class Trainer:
    def __init__(
        self,
        workload: Workload,
        dataset: Dataset,
        step: str,
        recorder: Recorder,
        watcher: Watcher,
        log_placement: bool,
    ) -> None:
        self.recorder, self.watcher = recorder, watcher
        self.directory: Path | None = None
        with self.recorder.span("prepare"):
            device, note = choose_device(workload.device)
            self.parts = assemble(workload, dataset, device)
            try:
                self.evaluator = Evaluator(workload, self.parts.network, self.parts.phases, dataset, device)
                self.step, choice = make_step(self.parts, step)
                placement = count_operations(self.parts) if log_placement else {}
            except BaseException:
                self.parts.feeder.close()
                raise
        self.notes = [note] if note else []
        self.run = Run(
            workload=workload,
            conditions=current_conditions(device, workload.precision),
            step=choice,
            parameters=sum(p.numel() for p in self.parts.network.parameters()),
            data=self.parts.feeder.where,
            classes=len(dataset.classes),
            chance_accuracy=chance_accuracy(dataset),
            placement=placement,
        )
        self.epoch, self.next, self.updates = 0, 0, 0
        self.score = Score()
        self.wall_before_s, self.rate_before = 0.0, math.nan
        self.timed_s, self.timed_samples, self.train_s = 0.0, 0, 0.0
        self.chunk = 1
        self.checkpoint_every_s: float | None = CHECKPOINT_EVERY_S
        self.saved_at_s, self.saving_s = 0.0, 0.0
        self.clock: TrainingClock | None = None

    def __enter__(self) -> Trainer:
        return self

    def __exit__(self, *error: object) -> None:
        self.step.close()
        self.evaluator.close()

    def restore(self, checkpoint: Checkpoint, place: Path) -> None:
        if self._samples() != checkpoint.samples:
            before, now = (f"{train:,} + {test:,}" for train, test in (checkpoint.samples, self._samples()))
            raise CheckpointError(f"{place} is of {before} samples, {self.run.workload.data} now has {now}")
        load_parameters(self.parts.network, checkpoint, place)
        try:
            self.step.load_state(checkpoint.optimizer)
            self.score = Score(**checkpoint.score)
            before = record.from_json(Run, json.loads(checkpoint.record), "record")
        except PacelineError:
            raise
        except (KeyError, ValueError, TypeError, RuntimeError) as error:
            raise CheckpointError(f"{place} does not fit: its step was {checkpoint.step_kind} ({error})") from error
        self.epoch, self.next, self.updates = checkpoint.epoch, checkpoint.next_step, checkpoint.updates
        self.wall_before_s, self.train_s = before.wall_s, before.train_s
        self.rate_before = before.samples_per_s
        self.run = replace(
            self.run,
            epochs=before.epochs,
            step=replace(before.step, kind=self.step.kind),
            resumed=before.resumed + 1,
            placement=before.placement,
        )

    def measure_with(self, clock: TrainingClock | None) -> None:
        """What is left of the run is measured; without a clock nothing changes."""
        if clock is not None:
            left = self.run.workload.epochs * self.parts.updates_per_epoch - self.updates
            with self.recorder.span("prepare"):
                self.clock, self.step = clock, clock.watch(self.step, self.run.step, left)

    def _samples(self) -> tuple[int, int]:
        return len(self.parts.dataset.train), len(self.parts.dataset.test)

    def train(self) -> Run:
        with StopRequest() as stop, recorded_end(self._record_end), explained(self.run.workload):
            self._update_record("running")
            self._save()
            self.watcher.begun(self.run, self.notes)
            for epoch in range(self.epoch, self.run.workload.epochs):
                self._train_epoch(epoch, stop)
            self._update_record("finished")
            self._save()
            self._update_record("finished")  # with the time the last checkpoint took
        return self.run

    def _train_epoch(self, epoch: int, stop: StopRequest) -> None:
        began_s = self.recorder.now()
        epoch_train_s, epoch_samples = 0.0, 0
        steps = self.parts.updates_per_epoch
        with self.recorder.span("train", f"epoch {epoch + 1}"):
            self.step.begin(epoch, self.next)
            while self.next < steps and not stop.made:
                seconds, samples = self._train_chunk(min(self.chunk, steps - self.next))
                epoch_train_s, epoch_samples = epoch_train_s + seconds, epoch_samples + samples
                rate = epoch_samples / epoch_train_s
                self.watcher.advanced(Progress(epoch, self.run.workload.epochs, self.next, steps, self.score, rate))
                self._check_loss()
                self._save_now_and_then()
        if self.next < steps:
            self._interrupt()
        with self.recorder.span("validate", f"epoch {epoch + 1}"):
            test = self.evaluator.score()
        self._finish_epoch(test, self.recorder.now() - began_s, epoch_samples / max(epoch_train_s, 1e-9))
        if stop.made and self.epoch < self.run.workload.epochs:
            self._interrupt()
        self._save_now_and_then()

    def _train_chunk(self, count: int) -> tuple[float, int]:
        """Some steps, and how long they took; the first ones of a process are not counted in the speed."""
        tally = Tally(self.run.workload.top)
        start_s = perf_counter()
        self.step.advance(count, tally)
        score = tally.read()
        seconds = perf_counter() - start_s
        self.score += score
        self.next += count
        self.updates += count
        self.train_s += seconds
        if self.clock is not None:
            self.clock.quarters.add(count, seconds)
        if self.chunk > 1:
            self.timed_s += seconds
            self.timed_samples += score.samples
        self.chunk = max(2, min(4 * self.chunk, math.ceil(count * CHUNK_S / max(seconds, 1e-9))))
        return seconds, score.samples

    def _finish_epoch(self, test: Score, wall_s: float, samples_per_s: float) -> None:
        done = Epoch(
            self.epoch + 1, self.score.loss, self.score.accuracy, self.score.top_accuracy,
            test.loss, test.accuracy, test.top_accuracy, wall_s, samples_per_s,
        )  # fmt: skip
        self.run = replace(self.run, epochs=(*self.run.epochs, done))
        self.epoch, self.next, self.score = self.epoch + 1, 0, Score()
        self._update_record("running")
        self.watcher.finished_epoch(done, self.run)

    def _check_loss(self) -> None:
        if math.isfinite(self.score.loss):
            return
        where = f"epoch {self.epoch + 1}, at or before step {self.next}"
        raise Diverged(
            f"the loss became {self.score.loss} in {where}: lower the learning rate (lr={self.run.workload.lr:g})"
            + (f"; the last good checkpoint is in {self.directory}" if self._keeps_checkpoints else "")
        )

    def _interrupt(self) -> None:
        self._update_record("interrupted")
        self._save()
        where = f"stopped in epoch {self.epoch + 1} after step {self.next}"
        if not self._keeps_checkpoints:
            raise Interrupted(f"{where}; nothing was kept, since no directory was given")
        raise Interrupted(f"{where}; go on with: paceline train --resume {self.directory}")

    def _record_end(self, status: str, error: str) -> None:
        if self.directory is None or self.directory.exists():  # one that was deleted is not brought back
            self._update_record(status, error)

    def _update_record(self, status: str, error: str = "") -> None:
        epochs = self.run.epochs
        last = epochs[-1] if epochs else None
        rate = self.timed_samples / self.timed_s if self.timed_s else self.rate_before
        self.run = replace(
            self.run,
            status=status,
            error=error,
            wall_s=self.wall_before_s + self.recorder.now(),
            train_s=self.train_s,
            samples_per_s=rate,
            updates=self.updates,
            test_accuracy=last.test_accuracy if last else math.nan,
            test_top_accuracy=last.test_top_accuracy if last else math.nan,
            test_loss=last.test_loss if last else math.nan,
            trace=Trace(tuple(self.recorder.spans)),
        )
        self.run = replace(self.run, warnings=warnings_of(self.run))
        if self.directory is not None:
            record.save(self.run, self.directory / "record.json")

    @property
    def _keeps_checkpoints(self) -> bool:
        return self.directory is not None and self.checkpoint_every_s is not None

    def _save_now_and_then(self) -> None:
        """A checkpoint when the last is old enough, and rarely enough that checkpoints cost little.

        With a pause of 0 there is one after every look at the clock.
        """
        if self.checkpoint_every_s is None:
            return
        pause_s = self.checkpoint_every_s and max(self.checkpoint_every_s, self.saving_s / CHECKPOINT_SHARE)
        if self.recorder.now() - self.saved_at_s >= pause_s:
            self._save()

    def _save(self) -> None:
        if self.directory is None or self.checkpoint_every_s is None:
            return
        with self.recorder.span("checkpoint"):
            start_s = self.recorder.now()
            so_far = replace(self.run, wall_s=self.wall_before_s + start_s, train_s=self.train_s)
            parameters = {name: t.detach().clone() for name, t in self.parts.network.state_dict().items()}
            save_checkpoint(
                Checkpoint(
                    workload=self.run.workload,
                    step_kind=self.step.kind,
                    epoch=self.epoch,
                    next_step=self.next,
                    updates=self.updates,
                    samples=self._samples(),
                    parameters=parameters,
                    optimizer=self.step.state(),
                    score=dataclasses.asdict(self.score),
                    record=json.dumps(record.to_json(so_far)),
                ),
                self.directory,
            )
        self.saved_at_s = self.recorder.now()
        self.saving_s = self.saved_at_s - start_s
