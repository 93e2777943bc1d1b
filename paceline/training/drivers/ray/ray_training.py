"""The Ray driver of a distributed run, as the launching process sees it: actors, validation, snapshots.

The launching process is not in the path of payloads and parameters: it hears how the run is doing, validates epochs,
and keeps checkpoints.
"""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from paceline.data.dataset import Dataset
from paceline.data.ray_rows import has_ray_rows
from paceline.record import from_json, to_json
from paceline.step.make import StepChoice
from paceline.step.tally import Score
from paceline.strategy.distribution import Distribution
from paceline.strategy.event_record import EventRecord
from paceline.strategy.learner import Learner
from paceline.strategy.position import Position
from paceline.trace import Recorder, Span
from paceline.training.checkpoint import Checkpoint
from paceline.training.collective import UNTESTED, choose_on_cluster
from paceline.training.conditions import current_conditions
from paceline.training.driver import CHECKPOINT_EVERY_S, DistributedOptions, Driver, Snapshot
from paceline.training.drivers.ray.connection import check_room, connected
from paceline.training.drivers.ray.job import Job
from paceline.training.drivers.ray.messages import ServerState
from paceline.training.drivers.ray.preparation import share_cluster
from paceline.training.drivers.ray.progress import RayProgress
from paceline.training.drivers.ray.run_metrics import RunMetrics
from paceline.training.drivers.ray.sent_objects import send_objects
from paceline.training.drivers.ray.serving import ServedTraining
from paceline.training.drivers.ray.sharding import choose_shards
from paceline.training.drivers.ray.supervisor import Supervisor
from paceline.training.evaluate import Evaluator
from paceline.training.flat_state import flat_parameters, named_parameters
from paceline.training.port_range import parse_port_range
from paceline.training.run import Run
from paceline.training.training_run import TrainingRun
from paceline.training.validation_thread import ValidationThread
from paceline.training.worker_parts import launcher_parts, phases_at_once
from paceline.workload import Workload

KIND = "ray"
"""The step of its checkpoints."""
POLL_S = 0.1
SHOW_EVERY_S = 0.2


class RayTraining(Driver):
    resumable = True

    def __init__(self, options: DistributedOptions, workload: Workload, dataset: Dataset, recorder: Recorder) -> None:
        self.options, self.recorder = options, recorder
        with ExitStack() as opened:  # closed again when something fails half way
            self._prepare(workload, dataset, opened)
            self._opened = opened.pop_all()

    def _prepare(self, workload: Workload, dataset: Dataset, opened: ExitStack) -> None:
        options, strategy, workers = self.options, self.options.strategy, self.options.workers
        settings = options.settings
        self.ray = opened.enter_context(connected(settings.address, workers * settings.worker_cpus))
        share = share_cluster(self.ray, workload, dataset, workers, settings.worker_cpus)
        check_room(self.ray, workers, share.shares)
        parts = launcher_parts(workload, dataset, share.of_launcher)
        strategy.check(workers, parts.updates_per_epoch)
        self.network, self.phases = parts.network, parts.phases
        self.learner = Learner(parts, strategy, workers)
        opened.callback(self.learner.close)
        self.evaluator = Evaluator(workload, parts.network, parts.phases, dataset, parts.device)
        opened.callback(self.evaluator.close)
        layout = self.learner.layout
        collective, always = choose_on_cluster(
            settings.collective, strategy, workers, on_gpus=share.device.startswith("cuda"), ports=settings.port_range
        )
        ports = parse_port_range(settings.port_range)
        nodes = sum(node["Alive"] for node in self.ray.nodes())
        shards = choose_shards(settings.server_shards, strategy, layout, nodes, collective, always=always)
        if shards > 1:  # then members average at the shards
            collective = "server"
        self.job = Job(
            strategy, layout, workload, workers, share.threads, share.device, self.learner.payload_size,
            cache="" if options.cache is None else str(options.cache.resolve()),
            search_path=tuple(str(Path(place or ".").resolve()) for place in sys.path),
            on_bad_gradient=settings.on_bad_gradient, faults=options.faults, record_events=settings.record_events,
            server_threads=settings.server_threads, shards=shards, collective=collective, collective_always=always,
            buckets=() if collective == "server" else self.learner.buckets, ports=(ports.start, ports.stop),
            stopped_timeout_s=settings.stopped_timeout, answer_within_s=settings.start_timeout,
        )  # fmt: skip
        self.start_state = ServedTraining(self.job, ServerState(self.learner.initial().cpu()), []).snapshot()
        self.objects = send_objects(self.ray, workload, dataset)
        self.shares = share.shares
        self.notes = [*share.notes, *phases_at_once(workload, self.learner, parts.phases)]
        self.notes += [UNTESTED] if collective == "nccl" else []
        how = f"{strategy.name}, {workers} workers with {share.shares} each on a Ray cluster, updates by the server"
        where = "in blocks of Ray Data" if has_ray_rows(dataset) else "at every worker"
        self.step, self.data = StepChoice(KIND, how), f"all {len(dataset.train):,} samples {where}"
        self.conditions = replace(current_conditions(parts.device, workload.precision), threads=share.threads)
        described = Distribution(
            strategy, workers, "ray", server_threads=settings.server_threads, server_shards=shards,
            commits="the server", collective="the server" if collective == "server" else collective,
        )  # fmt: skip
        passes = workers if strategy.full_pass_per_worker else 1
        self.progress = RayProgress(workload, described, passes * len(dataset.train), self.learner.turns.steps)
        self.metrics = RunMetrics(workload.network, strategy.name)
        self.supervisor: Supervisor | None = None
        self.validation: ValidationThread | None = None
        self.epochs_taken = 0
        self.shown_s = self.kept_s = 0.0
        self.run_: TrainingRun | None = None

    # The run

    def run(self, run: TrainingRun) -> None:
        self.run_ = run
        self.validation = ValidationThread(self._validate)
        supervisor = Supervisor(
            self.ray, self.job, self.objects, self.shares, self.options.settings, self._restored, run.check_stop
        )
        self.supervisor = self.progress.supervisor = supervisor
        with self.recorder.span("start"):
            supervisor.start(self.start_state)
            while self.progress.began_s is None:
                self._hear()
                run.check_stop()
        run.watcher.begun(run.run, self.notes)
        self.kept_s = time.monotonic()
        with self.recorder.span("train"):
            while not (self.progress.ended_s and len(run.run.epochs) == run.run.workload.epochs):
                self._hear()
                run.check_stop()
                self._report(run)
                self._validate_if_due(run)
                self._show(run)
                self._keep(run)

    def _hear(self) -> None:
        assert self.supervisor is not None
        self.progress.update(self.supervisor.poll(POLL_S))

    def _restored(self, state: ServerState) -> None:
        """Rolls the record back to the checkpoint from which the server continues."""
        self.progress.restored(state)
        self.epochs_taken = min(self.epochs_taken, state.epochs_done)
        assert self.validation is not None
        while self.validation.queue and self.validation.queue[-1].version > state.version:
            self.validation.queue.pop()
        for epoch in range(self.epochs_taken, state.epochs_done):  # the server had them and is gone
            self.progress.epoch_ends_s.setdefault(epoch, time.monotonic())
            self.validation.add(state.version, state.parameters, epoch)
            self.epochs_taken = epoch + 1
        if self.run_ is not None:
            kept = self.run_.run
            points = tuple(point for point in kept.points if point.updates <= state.version)
            self.run_.run = replace(kept, epochs=kept.epochs[: state.epochs_done], points=points)

    def _keep(self, run: TrainingRun) -> None:
        """Writes a checkpoint if one is due; without a directory it is kept in memory, for a server that dies."""
        assert self.supervisor is not None
        reported = len(run.run.epochs) == self.progress.status.epochs_done
        run.save_if_due(patience=1.0 if reported else 2.0)
        every_s = self.options.checkpoint_every_s or CHECKPOINT_EVERY_S
        if not run.keeps_checkpoints and time.monotonic() - self.kept_s >= every_s:
            self.supervisor.servers.snapshot()
            self.kept_s = time.monotonic()

    def _show(self, run: TrainingRun) -> None:
        if self.recorder.now() - self.shown_s >= SHOW_EVERY_S:
            self.shown_s = self.recorder.now()
            progress = self.progress.progress()
            run.watcher.advanced(progress)
            self.metrics.show(progress)

    def _validate(self, parameters: Tensor) -> Score:
        self.learner.show(parameters)
        return self.evaluator.score()

    def _validate_if_due(self, run: TrainingRun) -> None:
        assert self.validation is not None and self.supervisor is not None
        if not self.validation.is_behind and run.validation_is_due(self.updates, self.progress.train_s):
            found = self.supervisor.servers.current_parameters()
            if found is not None:
                parameters = torch.tensor(found[1])
                self.validation.add(found[0], parameters, None, self.progress.passes, self.progress.train_s)

    def _report(self, run: TrainingRun, wait: bool = False) -> None:
        """Reports finished validations; with `wait`, waits for those in progress."""
        assert self.validation is not None
        self._take_epochs(run)
        self.validation.report(run, self.progress, wait)

    def _take_epochs(self, run: TrainingRun) -> None:
        """Validates epochs that have ended since the last call."""
        assert self.validation is not None and self.supervisor is not None
        while self.epochs_taken < self.progress.status.epochs_done:
            found = self.supervisor.servers.epoch_parameters(self.epochs_taken)
            if found is None:  # the server has just died
                return
            parameters = torch.tensor(found[1]) if run.validates(self.epochs_taken) else None
            self.validation.add(found[0], parameters, self.epochs_taken)
            self.epochs_taken += 1

    # What is kept

    @property
    def updates(self) -> int:
        return self.progress.status.version

    def where(self) -> str:
        return f"update {self.updates}"

    def distribution(self) -> Distribution:
        return self.progress.distribution()

    def trace(self) -> list[Span]:
        began_s = (self.progress.began_s or 0.0) - (self.recorder.origin_s or 0.0)
        found = (self.supervisor.servers.ask("trace") if self.supervisor is not None else None) or []
        return [replace(span, start_s=span.start_s + began_s, end_s=span.end_s + began_s) for span in found]

    def timing(self) -> tuple[float, float]:
        return self.progress.train_s, self.progress.samples_per_s

    def snapshot(self) -> Snapshot:
        """Saves one consistent version of everything while the actors continue."""
        state = self.start_state if self.supervisor is None else self.supervisor.servers.snapshot()
        named = named_parameters(self.network, state.parameters, self.learner.local)
        saved = {
            **(state.saved or {}),
            "strategy": to_json(self.options.strategy),
            "workers": self.options.workers,
            "server_threads": self.options.settings.server_threads,
        }
        return Snapshot(state.version, state.epochs_done, named, saved, state.score)

    def report_epochs(self, run: TrainingRun, count: int) -> None:
        while len(run.run.epochs) < count:
            self._hear()
            self._report(run, wait=True)

    def restore(self, checkpoint: Checkpoint, before: Run) -> None:
        parameters = flat_parameters(self.network, checkpoint.parameters, self.learner.local)
        score = Score(**checkpoint.score)
        self.start_state = ServerState(parameters, checkpoint.optimizer, score, checkpoint.epoch, checkpoint.updates)
        self.epochs_taken = checkpoint.epoch
        position: Position = from_json(Position, checkpoint.optimizer["position"], "position")
        self.progress.resume(before, position.ledger.closed)

    def events(self) -> EventRecord | None:
        found: EventRecord | None = None if self.supervisor is None else self.supervisor.servers.ask("events")
        return found

    def close(self) -> None:
        if self.supervisor is not None:
            self.supervisor.stop()
        if self.validation is not None:
            self.validation.close()
            self.validation = None
        self.run_ = None  # no cycle keeps the memory
        self._opened.close()
