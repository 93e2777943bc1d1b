"""The local driver of a distributed run, as the launcher sees it: shared memory, processes, validation, snapshots."""

from __future__ import annotations

import dataclasses
import os
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from paceline.data.dataset import Dataset
from paceline.formatting import count
from paceline.record import to_json
from paceline.step.make import StepChoice
from paceline.step.tally import Score
from paceline.strategy.distribution import Distribution
from paceline.strategy.event_record import EventRecord
from paceline.strategy.learner import Learner
from paceline.strategy.updater import Updater
from paceline.trace import Recorder, Span
from paceline.training.checkpoint import Checkpoint
from paceline.training.collective import UNTESTED, choose_collective
from paceline.training.conditions import current_conditions
from paceline.training.driver import DistributedOptions, Driver, Snapshot
from paceline.training.drivers.local.child import Bells
from paceline.training.drivers.local.doorbell import Doorbell
from paceline.training.drivers.local.event_log import events_of
from paceline.training.drivers.local.fields import ControlField
from paceline.training.drivers.local.position import put_state, saved_state
from paceline.training.drivers.local.preparation import sizes_of, why_server_commits
from paceline.training.drivers.local.progress import LocalProgress
from paceline.training.drivers.local.settings import ProcessSettings
from paceline.training.drivers.local.shared_memory import SharedMemory
from paceline.training.drivers.local.span_log import spans_of
from paceline.training.drivers.local.store import SharedStore
from paceline.training.drivers.local.supervisor import Supervisor
from paceline.training.evaluate import Evaluator
from paceline.training.flat_state import flat_parameters, named_parameters
from paceline.training.run import Run
from paceline.training.training_run import TrainingRun
from paceline.training.validation_thread import ValidationThread
from paceline.training.worker_measurements import wait_for_clocks
from paceline.training.worker_parts import launcher_parts, phases_at_once, saved_objects, share_machine
from paceline.workload import Workload

KIND = "local"
"""The step of a checkpoint that only this driver resumes."""
POLL_INTERVAL_S = 0.05
SHOW_EVERY_S = 0.2


class LocalTraining(Driver):
    resumable = True

    def __init__(
        self,
        measure: Path | None,
        options: DistributedOptions,
        workload: Workload,
        dataset: Dataset,
        recorder: Recorder,
    ) -> None:
        """Every worker writes into the folder `measure` where its time goes, layer by layer."""
        self.options, self.measure, self.recorder, self.dataset = options, measure, recorder, dataset
        with ExitStack() as opened:  # closed again when something fails half way
            self._prepare(workload, dataset, opened)
            self._opened = opened.pop_all()

    def _prepare(self, workload: Workload, dataset: Dataset, opened: ExitStack) -> None:
        options, strategy, workers = self.options, self.options.strategy, self.options.workers
        share = share_machine(workload, dataset, workers, options.settings.server_threads)
        collective = choose_collective(
            options.settings.collective, strategy, workers, share.devices, record_events=options.settings.record_events
        )
        parts = launcher_parts(workload, dataset, share)
        strategy.check(workers, parts.updates_per_epoch)
        self.network, self.phases = parts.network, parts.phases
        self.learner = Learner(parts, strategy, workers)
        opened.callback(self.learner.close)
        layout = self.learner.layout
        updater = Updater(strategy, layout, workers)
        why = why_server_commits(strategy, updater, workers, share.devices[0], collective)
        sizes = sizes_of(
            strategy, layout, workers, record_events=options.settings.record_events, workers_commit=not why
        )
        self.memory = SharedMemory(sizes)
        opened.callback(self.memory.close)
        self.store = SharedStore(self.memory, workers, updater, self._help)
        self.bells = self._make_bells(opened)
        self.evaluator = Evaluator(workload, parts.network, parts.phases, dataset, parts.device)
        opened.callback(self.evaluator.close)
        self._put_initial(updater)
        self.notes = [*share.notes, *phases_at_once(workload, self.learner, parts.phases)]
        self.notes += [UNTESTED] if collective == "nccl" else []
        self.commits = "the workers" if not why else f"the server: {why}"
        how = f"{strategy.name}, {count(workers, 'worker')} with shared memory, updates by {self.commits}"
        self.step, self.data = StepChoice(KIND, how), f"all {len(dataset.train):,} samples at every worker"
        self.conditions = replace(current_conditions(parts.device, workload.precision), threads=share.threads)
        settings = ProcessSettings(
            sizes=sizes, strategy=strategy, layout=layout, workload=workload, workers=workers,
            threads=share.threads, number=0, incarnation=0, device="cpu",
            cache="" if options.cache is None else str(options.cache.resolve()),
            search_path=tuple(str(Path(place or ".").resolve()) for place in sys.path),
            on_bad_gradient=options.settings.on_bad_gradient, faults=options.faults,
            measure="" if self.measure is None else str(self.measure.resolve()),
            collective=collective, rendezvous=_rendezvous(opened) if collective != "shared" else "",
            server_threads=options.settings.server_threads,
            objects=saved_objects(workload, lambda: _temporary_folder(opened)),
        )  # fmt: skip
        self.supervisor = Supervisor(self.memory, settings, self.bells, share.devices, options.settings, options.faults)
        described = Distribution(
            strategy, workers, "local", server_threads=options.settings.server_threads, commits=self.commits,
            collective="shared memory" if collective == "shared" else collective,
        )  # fmt: skip
        self.progress = LocalProgress(self.memory, self.supervisor, workload, described, len(dataset.train))
        self.bell = Doorbell(self.memory, workers + 1, self.bells.launcher)
        self.shown_s = 0.0
        self.validation: ValidationThread | None = None

    def _make_bells(self, opened: ExitStack) -> Bells:
        made = []
        for _ in range(self.options.workers + 2):
            made.append(os.eventfd(0, os.EFD_NONBLOCK))
            opened.callback(os.close, made[-1])
        return Bells(made[0], made[1], tuple(made[2:]))

    def _put_initial(self, updater: Updater) -> None:
        """Writes version 0 of the parameters and of the server's optimizer state."""
        self.memory.parameters[0].copy_(self.learner.initial())
        for name, tensor in updater.initial_state().items():
            self.memory.states[0][name].copy_(tensor)  # not all of it is zero

    # The run

    def run(self, run: TrainingRun) -> None:
        self.validation = ValidationThread(self._validate)
        try:
            with self.recorder.span("start"):
                self.supervisor.start()
                while not self.supervisor.complete:
                    self._sleep()
                    self.supervisor.check()
                    run.check_stop()
            run.watcher.begun(run.run, self.notes)
            self.progress.begin(time.monotonic(), self.updates)
            with self.recorder.span("train"):
                while not self._is_over(run):
                    self._sleep()
                    self._poll(run)
            self.progress.ended_s = time.monotonic()
            self._report(run, wait=True)
            if self.measure is not None:
                wait_for_clocks(self.measure, self.options.workers)
        finally:
            self.supervisor.stop()

    def _sleep(self) -> None:
        self.bell.arm()
        self.bell.wait(POLL_INTERVAL_S)

    def _is_over(self, run: TrainingRun) -> bool:
        return bool(self.memory.control[ControlField.FINISHED]) and len(run.run.epochs) == run.run.workload.epochs

    def _poll(self, run: TrainingRun) -> None:
        if not self.memory.control[ControlField.FINISHED]:
            self.supervisor.check()
        run.check_stop()
        self.progress.update()
        self._report(run)
        self._validate_if_due(run)
        if self.recorder.now() - self.shown_s >= SHOW_EVERY_S:
            self.shown_s = self.recorder.now()
            run.watcher.advanced(self.progress.progress())
        reported = len(run.run.epochs) == self.memory.control[ControlField.EPOCHS_DONE]
        run.save_if_due(patience=1.0 if reported else 2.0)  # else it would have to wait for a validation

    def _validate(self, parameters: Tensor) -> Score:
        self.learner.show(parameters)
        return self.evaluator.score()

    def _validate_if_due(self, run: TrainingRun) -> None:
        assert self.validation is not None
        if not self.validation.is_behind and run.validation_is_due(self.updates, self.progress.train_s):
            parameters = torch.empty_like(self.memory.parameters[0])
            version = self.store.read(parameters)
            self.validation.add(version, parameters, None, self.progress.passes, self.progress.train_s)

    def _report(self, run: TrainingRun, wait: bool = False) -> None:
        """Reports finished validations; with `wait`, waits for those in progress."""
        assert self.validation is not None
        self._take_epochs(run, self.validation)
        self.validation.report(run, self.progress, wait)

    def _take_epochs(self, run: TrainingRun, validation: ValidationThread) -> None:
        """Validates epochs that have ended since the last call."""
        control = self.memory.control
        for epoch in range(control[ControlField.EPOCHS_TAKEN], control[ControlField.EPOCHS_DONE]):
            parameters = self.memory.epoch_parameters[epoch % 2].clone() if run.validates(epoch) else None
            validation.add(control[ControlField.EPOCH_VERSION + epoch % 2], parameters, epoch)
            control[ControlField.EPOCHS_TAKEN] = epoch + 1
            self.supervisor.server_bell.notify()

    # What is kept

    @property
    def updates(self) -> int:
        return self.memory.version

    def where(self) -> str:
        return f"update {self.updates}"

    def distribution(self) -> Distribution:
        return self.progress.distribution()

    def trace(self) -> list[Span]:
        return spans_of(self.memory, self.recorder.origin_s or 0.0)

    def timing(self) -> tuple[float, float]:
        return self.progress.train_s, self.progress.samples_per_s

    def _help(self) -> None:
        """Called while waiting for the lock or for a worker's losses: the process that holds them may hang."""
        if not self.memory.control[ControlField.FINISHED] and self.supervisor.server.process is not None:
            self.supervisor.check()

    def snapshot(self) -> Snapshot:
        """Saves one consistent version of everything while the processes continue."""
        memory = self.memory
        with self.store.lock:
            version, done = self.updates, memory.control[ControlField.EPOCHS_DONE]
            parameters, optimizer = self.store.newest()
            parameters, state = parameters.clone(), saved_state(memory, optimizer)
        by_worker = [self.progress.worker_score(number) for number in range(self.options.workers)]
        state |= {
            "strategy": to_json(self.options.strategy),
            "workers": self.options.workers,
            "server_threads": self.options.settings.server_threads,
            "worker_scores": [dataclasses.asdict(score) for score in by_worker],
        }
        named = named_parameters(self.network, parameters, self.learner.local)
        return Snapshot(version, done, named, state, self.progress.score(done))

    def report_epochs(self, run: TrainingRun, count: int) -> None:
        while len(run.run.epochs) < count:
            self._sleep()
            self._help()
            self.progress.update()
            self._report(run, wait=True)

    def restore(self, checkpoint: Checkpoint, before: Run) -> None:
        saved = checkpoint.optimizer
        put_state(self.memory, saved, flat_parameters(self.network, checkpoint.parameters, self.learner.local))
        by_worker = [Score(**score) for score in saved["worker_scores"]]
        self.progress.continue_from(before, Score(**checkpoint.score), by_worker)

    def events(self) -> EventRecord | None:
        return events_of(self.memory, self.learner.parts.workload, self.options.strategy)

    def close(self) -> None:
        self.supervisor.stop()
        if self.validation is not None:
            self.validation.close()
            self.validation = None  # it knows the run, which knows us: no cycle keeps the memory
        self.store.lock.on_wait = None  # nor this one
        self._opened.close()


def _rendezvous(opened: ExitStack) -> str:
    """Prefix of the files through which the members of a group find each other."""
    return str(_temporary_folder(opened) / "group")


def _temporary_folder(opened: ExitStack) -> Path:
    folder = tempfile.TemporaryDirectory(prefix="paceline-", ignore_cleanup_errors=True)
    opened.callback(folder.cleanup)
    return Path(folder.name)
