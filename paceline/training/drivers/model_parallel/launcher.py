"""Trains a workload whose network is divided among processes of this machine, or resumes such a run."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from paceline.errors import CheckpointError, PacelineError, StrategyError, WorkloadError
from paceline.record import from_json
from paceline.settings import pick
from paceline.step.own_loss import OwnLoss
from paceline.trace import Span
from paceline.training.checkpoint import Checkpoint
from paceline.training.division import Division
from paceline.training.driver import MakeDriver, RunOptions
from paceline.training.drivers.local.process_server import process_server
from paceline.training.drivers.model_parallel.divided_step import DividedStep
from paceline.training.drivers.model_parallel.stage_processes import LostProcess
from paceline.training.drivers.model_parallel.starting import make_divided
from paceline.training.resuming import resumed_workload
from paceline.training.run import Run
from paceline.training.settings import ParallelSettings
from paceline.training.trainer import Trainer
from paceline.training.training_run import TrainingRun, resume_from, train_new
from paceline.workload import Workload


def run(workload: Workload, parallel: ParallelSettings, *, replicas: int = 1, **options: Any) -> Run:
    """Trains `replicas` copies of the network, each divided as `parallel` says; `options` are those of `RunOptions`."""
    workload, given = _checked(workload, parallel, replicas), RunOptions.of(options)
    process_server()  # it imports PyTorch while the data are loaded
    return train_new(workload, given, functools.partial(DividedTraining, parallel, replicas, given))


def resume(
    directory: str | Path, parallel: Mapping[str, Any], *, changes: dict[str, Any] | None = None, **options: Any
) -> Run:
    """Resumes the run in `directory`; what `parallel` does not say is as before."""
    given = RunOptions.of(options)

    def plan(checkpoint: Checkpoint, place: Path) -> tuple[Workload, RunOptions, MakeDriver]:
        settings, replicas = divided_as(checkpoint, parallel, place)
        workload = _checked(resumed_workload(checkpoint, changes or {}, place), settings, replicas)
        process_server()
        return workload, given, functools.partial(DividedTraining, settings, replicas, given)

    return resume_from(directory, plan)


def divided_as(checkpoint: Checkpoint, changes: Mapping[str, Any], place: Path) -> tuple[ParallelSettings, int]:
    """How the network of a checkpoint is divided from now on, and how many replicas there are."""
    saved = checkpoint.optimizer
    if "torch" not in saved:
        raise CheckpointError(
            f"{place} was trained with step {checkpoint.step_kind}: to divide its network, train with `step='plain'`"
        )
    before = from_json(ParallelSettings, saved.get("parallel", {}), "parallel")
    after = replace(before, **pick(ParallelSettings, changes))
    if changes and "microbatches" not in changes and not replace(after, microbatches=None).divides:
        after = replace(after, microbatches=None)  # whoever asks for one process means a plain one
    return after, int(saved.get("replicas", 1))


class DividedTraining(Trainer):
    """The driver: that of one process, whose steps are taken by others."""

    taken: DividedStep

    def __init__(self, parallel: ParallelSettings, replicas: int, options: RunOptions, *given: Any) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="paceline-", ignore_cleanup_errors=True)
        try:
            make = functools.partial(make_divided, parallel, replicas, options, Path(self._folder.name))
            super().__init__(*given, step=make)
        except BaseException:
            self._folder.cleanup()
            raise
        self.notes = []

    def run(self, run: TrainingRun) -> None:
        try:
            super().run(run)
        except LostProcess as error:
            if not run.keeps_checkpoints:
                raise
            raise PacelineError(f"{error}; continue with: `paceline.resume({str(run.directory)!r})`") from error

    def division(self) -> Division:
        return self.taken.division

    def trace(self) -> list[Span]:
        origin_s = self.recorder.origin_s or 0.0
        return [Span(who, part, start_s - origin_s, end_s - origin_s) for who, part, start_s, end_s in self.taken.spans]

    def close(self) -> None:
        super().close()
        self._folder.cleanup()


def _checked(workload: Workload, parallel: ParallelSettings, replicas: int) -> Workload:
    """The workload on the CPU, or what is wrong before anything is loaded."""
    what = parallel.divided_by
    if parallel.shard == "fsdp" and (replicas == 1 or parallel.processes > 1):
        raise StrategyError("`shard='fsdp'` divides a network among `workers=2` or more, and not into parts otherwise")
    if workload.device not in ("auto", "cpu"):
        raise WorkloadError(f"{what} computes on CPUs alone: `device={workload.device!r}` should be cpu")
    parallel.check_batch(workload.batch)
    if workload.accumulate > 1:
        raise WorkloadError(f"{what} divides a batch into `microbatches`: leave out `accumulate={workload.accumulate}`")
    if workload.precision not in ("float32", "float64"):
        raise WorkloadError(f"{what} is for float32 and float64, not `precision={workload.precision!r}`")
    if workload.phases or ":" in workload.optimizer:
        own = "phases" if workload.phases else "optimizer"
        raise WorkloadError(f"{what} does not work with a custom {own}, {getattr(workload, own)!r}")
    if ":" in workload.loss and OwnLoss.find(workload.loss).takes_model:
        raise WorkloadError(f"{what} needs a loss(output, target): {workload.loss} takes the whole model")
    if workload.loss == "model":
        raise WorkloadError(f"{what} needs a loss of output and target: `loss='model'` is the network's own")
    return replace(workload, device="cpu")
