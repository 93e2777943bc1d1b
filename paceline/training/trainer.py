"""The driver of a run in this process: epochs of steps, with a look at signals, checkpoints and progress in between."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from paceline.data.dataset import Dataset
from paceline.errors import Diverged
from paceline.step.build import assemble
from paceline.step.failures import likely_cause
from paceline.step.loss_scaling import scalers_of
from paceline.step.make import StepChoice
from paceline.step.placement import choose_device
from paceline.step.step import Step
from paceline.step.tally import Score, Tally
from paceline.trace import Recorder
from paceline.training.checkpoint import Checkpoint
from paceline.training.conditions import current_conditions
from paceline.training.driver import Driver, MakeDriver, RunOptions, Snapshot
from paceline.training.evaluate import Evaluator
from paceline.training.placement_log import count_operations
from paceline.training.resuming import resumed_step, resumed_workload
from paceline.training.run import Epoch, Run
from paceline.training.step_choice import choose_step
from paceline.training.step_tuning import tuned_step
from paceline.training.training_run import TrainingRun, resume_from, train_new
from paceline.training.watcher import Progress
from paceline.workload import TUNE, Workload

if TYPE_CHECKING:  # a run that is not measured imports nothing of measuring
    from paceline.training.measured_training import TrainingClock

MakeStep = Callable[[Workload, Dataset], tuple[Step, StepChoice]]
"""Makes the step of a run whose parts are its own."""
CHUNK_S = 0.2
"""Between two looks at signals, checkpoints and progress."""


def run(
    workload: Workload, *, step: str = "auto", clock: TrainingClock | None = None, log_placement: bool = False,
    **options: Any,
) -> Run:  # fmt: skip
    """Trains `workload` and returns the record; `clock` measures its layers. `options` are those of `RunOptions`."""
    make = functools.partial(Trainer, step=step, clock=clock, log_placement=log_placement)
    return train_new(workload, RunOptions.of(options), make)


def resume(
    directory: str | Path, *, changes: dict[str, Any] | None = None, clock: TrainingClock | None = None, **options: Any
) -> Run:
    """Resumes the run in `directory` from its last checkpoint; `clock` measures what is left of it."""
    given = RunOptions.of(options)

    def plan(checkpoint: Checkpoint, place: Path) -> tuple[Workload, RunOptions, MakeDriver]:
        workload = resumed_workload(checkpoint, changes or {}, place)
        step = resumed_step(checkpoint, workload)
        return workload, given, functools.partial(Trainer, step=step, clock=clock, resumed=True)

    return resume_from(directory, plan)


class Trainer(Driver):
    resumable = True

    def __init__(
        self, workload: Workload, dataset: Dataset, recorder: Recorder, *, step: str | MakeStep,
        clock: TrainingClock | None = None, log_placement: bool = False, resumed: bool = False,
    ) -> None:  # fmt: skip
        self.workload, self.recorder, self.clock = workload, recorder, clock
        self.epoch, self.next = 0, 0
        device, note = choose_device(workload.device)
        with ExitStack() as on_failure:
            if isinstance(step, str):
                self.parts = assemble(workload, dataset, device)
                on_failure.callback(self.parts.feeder.close)
            else:
                self.taken, self.step = step(workload, dataset)
                self.parts = self.taken.parts
                on_failure.callback(self.taken.close)
            self.network, self.phases, self.data = self.parts.network, self.parts.phases, self.parts.feeder.where
            self.evaluator = Evaluator(workload, self.network, self.parts.phases, dataset, self.parts.device)
            on_failure.callback(self.evaluator.close)
            if isinstance(step, str):
                make = tuned_step if step == TUNE else functools.partial(choose_step, asked=step)
                self.taken, self.step = make(self.parts)
            self.placement = count_operations(self.parts) if log_placement else {}
            if not resumed:
                self._measure_rest()
            on_failure.pop_all()
        self.conditions = current_conditions(device, workload.precision)
        self.notes = [note] if note else []
        self.score = Score()
        self.rate_before = math.nan
        self.timed_s, self.timed_samples, self.train_s = 0.0, 0, 0.0
        self.chunk = 1

    def restore(self, checkpoint: Checkpoint, before: Run) -> None:
        self.taken.load_state(checkpoint.optimizer)
        self.score = Score(**checkpoint.score)
        self.epoch, self.next = checkpoint.epoch, checkpoint.next_step
        self.train_s, self.rate_before = before.train_s, before.samples_per_s
        self.step = replace(before.step, kind=self.taken.kind)
        with self.recorder.span("prepare"):
            self._measure_rest()

    def _measure_rest(self) -> None:
        """Measures what is left of the run; without a clock nothing changes."""
        if self.clock is not None:
            left = self.workload.epochs * self.parts.updates_per_epoch - self.updates
            self.taken = self.clock.watch(self.taken, self.step, left)

    # The run

    def run(self, run: TrainingRun) -> None:
        run.watcher.begun(run.run, self.notes)
        while self.epoch < self.workload.epochs:
            self._train_epoch(run)
            if self.epoch < self.workload.epochs:
                run.check_stop()
            run.save_if_due()

    def _train_epoch(self, run: TrainingRun) -> None:
        began_s = self.recorder.now()
        epoch_train_s, epoch_samples = 0.0, 0
        steps = self.parts.updates_per_epoch
        with self.recorder.span("train", f"epoch {self.epoch + 1}"):
            self.taken.begin(self.epoch, self.next)
            while self.next < steps and not run.stop.made:
                count = min(self.chunk, steps - self.next, run.updates_to_validation(self.updates))
                seconds, samples = self._train_chunk(count)
                epoch_train_s, epoch_samples = epoch_train_s + seconds, epoch_samples + samples
                rate = epoch_samples / epoch_train_s
                run.watcher.advanced(Progress(self.epoch, self.workload.epochs, self.next, steps, self.score, rate))
                self._check_loss(run)
                self._validate_between(run)
                run.save_if_due()
        if self.next < steps:
            run.check_stop()
        test = Score()
        if run.validates(self.epoch):
            with self.recorder.span("validate", f"epoch {self.epoch + 1}"):
                self.taken.show()
                test = self.evaluator.score()
            run.validated(self.epoch + 1, self.train_s, self.updates, test, self.score.loss)
        wall_s, samples_per_s = self.recorder.now() - began_s, epoch_samples / max(epoch_train_s, 1e-9)
        done = Epoch.of(self.epoch, self.score, test, wall_s, samples_per_s)
        self.epoch, self.next, self.score = self.epoch + 1, 0, Score()
        run.finished_epoch(done, self.updates)

    def _train_chunk(self, count: int) -> tuple[float, int]:
        """Some steps, and how long they took; the first ones of a process are not counted in the speed."""
        tally = Tally(self.workload.top)
        start_s = perf_counter()
        self.taken.advance(count, tally)
        score = tally.read()
        seconds = perf_counter() - start_s
        self.score += score
        self.next += count
        self.train_s += seconds
        if self.clock is not None:
            self.clock.quarters.add(count, seconds)
        if self.chunk > 1:
            self.timed_s += seconds
            self.timed_samples += score.samples
        self.chunk = max(2, min(4 * self.chunk, math.ceil(count * CHUNK_S / max(seconds, 1e-9))))
        return seconds, score.samples

    def _validate_between(self, run: TrainingRun) -> None:
        steps = self.parts.updates_per_epoch
        if run.validation_is_due(self.updates, self.train_s) and self.next < steps:  # else the epoch's end is validated
            with self.recorder.span("validate", f"update {self.updates}"):
                self.taken.show()
                test = self.evaluator.score()
            run.validated(self.epoch + self.next / steps, self.train_s, self.updates, test)

    def _check_loss(self, run: TrainingRun) -> None:
        if math.isfinite(self.score.loss):
            return
        where = f"epoch {self.epoch + 1}, at or before step {self.next}"
        raise Diverged(
            f"the loss became {self.score.loss} in {where}: {likely_cause(self.parts.dataset, self.workload)}"
            + (f"; the last good checkpoint is in {run.directory}" if run.keeps_checkpoints else "")
        )

    # What is kept

    @property
    def updates(self) -> int:
        return self.epoch * self.parts.updates_per_epoch + self.next

    @property
    def skipped_updates(self) -> int:  # type: ignore[override]  # it changes while training
        return sum(int(scaler.state["skipped"]) for scaler in scalers_of(self.phases))

    def where(self) -> str:
        return f"step {self.next}"

    def timing(self) -> tuple[float, float]:
        return self.train_s, self.timed_samples / self.timed_s if self.timed_s else self.rate_before

    def snapshot(self) -> Snapshot:
        self.taken.show()
        parameters = {name: t.detach().clone() for name, t in self.network.state_dict().items()}
        return Snapshot(self.updates, self.epoch, parameters, self.taken.state(), self.score, self.next)

    def close(self) -> None:
        self.taken.close()
        self.evaluator.close()
