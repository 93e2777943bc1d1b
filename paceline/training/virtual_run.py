"""Trains a workload on a virtual cluster in this process: real gradients and validations, simulated time."""

from __future__ import annotations

import functools
import math
from time import perf_counter
from typing import Any

from torch import Tensor

from paceline.data.dataset import Dataset
from paceline.simulation.simulation import distribution_of
from paceline.simulation.virtual_cluster import VirtualCluster
from paceline.simulation.virtual_driver import VirtualDriver
from paceline.simulation.virtual_store import VirtualStore
from paceline.step.build import assemble
from paceline.step.make import StepChoice
from paceline.step.placement import choose_device
from paceline.step.tally import Score
from paceline.step.trial import unused_parameters
from paceline.strategy.distribution import Distribution
from paceline.strategy.event_record import EventRecord
from paceline.strategy.presets import find_strategy
from paceline.strategy.strategy import Strategy
from paceline.trace import Recorder, Span
from paceline.training.conditions import current_conditions
from paceline.training.driver import DistributedOptions, Driver, Snapshot
from paceline.training.evaluate import Evaluator
from paceline.training.flat_state import named_parameters
from paceline.training.resuming import VIRTUAL
from paceline.training.run import Epoch, Run
from paceline.training.training_run import TrainingRun, train_new
from paceline.training.watcher import Progress, WorkersProgress
from paceline.training.worker_parts import phases_at_once
from paceline.workload import Workload

SHOW_EVERY_S = 0.2


def run_virtual(
    workload: Workload,
    strategy: Strategy | str = "downpour",
    *,
    workers: int = 2,
    cluster: VirtualCluster | None = None,
    **options: Any,
) -> Run:
    """Trains `workload` with `workers` simulated workers and returns the record.

    `options` are those of `DistributedOptions`.
    """
    given = DistributedOptions.of(options, strategy=find_strategy(strategy), workers=workers)
    given.check("virtual")
    cluster = cluster or VirtualCluster()
    cluster.check(workers, given.faults)
    return train_new(workload, given, functools.partial(VirtualTraining, cluster, given))


class VirtualTraining(Driver):
    """The simulated cluster as a driver. A simulation is not resumed: its seed repeats it."""

    def __init__(
        self, cluster: VirtualCluster, options: DistributedOptions, workload: Workload, dataset: Dataset, _: Recorder
    ) -> None:
        strategy, workers = options.strategy, options.workers
        device, note = choose_device(workload.device)
        parts = assemble(workload, dataset, device)
        try:
            unused_parameters(parts)
            self.evaluator = Evaluator(workload, parts.network, parts.phases, dataset, device)
            self.store = VirtualStore(parts, strategy, workers, record=options.settings.record_events)
            self.driver = VirtualDriver(
                strategy, workers, cluster, batches=parts.updates_per_epoch, epochs=workload.epochs,
                seed=workload.seed, gradients=self.store, on_bad_gradient=options.settings.on_bad_gradient,
                faults=options.faults, observer=self,
            )  # fmt: skip
        except BaseException:
            parts.feeder.close()
            raise
        self.learner, self.network, self.phases = self.store.learner, parts.network, parts.phases
        self.notes, self.data = [note] if note else [], parts.feeder.where
        self.notes += phases_at_once(workload, self.learner, parts.phases)
        self.conditions = current_conditions(device, workload.precision)
        how = f"{strategy.name} with {workers} simulated workers, one gradient after another"
        self.step = StepChoice(VIRTUAL, how)
        self.run_: TrainingRun | None = None
        self.shown_s = self.epoch_began_s = perf_counter()
        self.train_s, self.samples = 0.0, 0
        self.shares_s: list[float] = []
        """Training seconds of the epochs that ended together and are still to be reported."""

    def run(self, run: TrainingRun) -> None:
        self.run_ = run
        try:
            run.watcher.begun(run.run, self.notes)
            self.shown_s = self.epoch_began_s = perf_counter()
            self.driver.run()
            self.learner.show(self.store.current)
        finally:
            self.run_ = None  # no reference cycle keeps the run's memory

    def advanced(self) -> None:
        """Shows the progress and checks whether to stop."""
        now_s, run = perf_counter(), self.run_
        if now_s - self.shown_s < SHOW_EVERY_S or run is None:
            return
        self.shown_s = now_s
        run.check_stop()
        coordinator = self.driver.coordinator
        epoch, epochs = len(run.run.epochs), run.run.workload.epochs
        if epoch == epochs:
            return
        batches = coordinator.batches
        score = self.store.score_so_far(epoch)
        workers = WorkersProgress(
            coordinator.alive, self.driver.workers, coordinator.version / max(self.driver.now_s, 1e-9),
            coordinator.ledger.summary().mean_staleness,
        )  # fmt: skip
        done = batches.closed(epoch) if epoch in batches.done else 0
        rate = score.samples / max(now_s - self.epoch_began_s, 1e-9)
        run.watcher.advanced(Progress(epoch, epochs, done, batches.per_epoch, score, rate, workers))

    def updated(self, update: int) -> None:
        run = self.run_
        if run is not None and run.validation_is_due(update, self.driver.now_s):
            began_s = perf_counter()
            test = self._validate(self.store.current)
            batches = self.driver.coordinator.ledger.applied.total()
            passes = batches / self.driver.coordinator.batches.per_epoch
            run.validated(passes, self.driver.now_s, update, test)
            self.epoch_began_s += perf_counter() - began_s  # validation is not training

    def epoch_done(self, epoch: int) -> None:
        run, score, updates = self.run_, self.store.epoch_score, self.updates
        assert run is not None
        began_s = perf_counter()
        if not self.shares_s:  # epochs that end together were trained together
            together = self.driver.coordinator.epochs_done - epoch
            self.shares_s = [(began_s - self.epoch_began_s) / together] * together
        train_s = self.shares_s.pop()
        self.samples += score.samples
        self.train_s += train_s
        test = Score()
        if run.validates(epoch):
            test = self._validate(self.store.current)
            run.validated(epoch + 1, self.driver.now_s, updates, test, score.loss)
        wall_s = train_s + perf_counter() - began_s
        run.finished_epoch(Epoch.of(epoch, score, test, wall_s, score.samples / max(train_s, 1e-9)), updates)
        run.save()
        self.epoch_began_s = perf_counter()

    def _validate(self, parameters: Tensor) -> Score:
        self.learner.show(parameters)
        return self.evaluator.score()

    @property
    def updates(self) -> int:
        return self.driver.coordinator.version

    def where(self) -> str:
        return f"update {self.updates} and {self.driver.now_s:g} virtual seconds"

    def distribution(self) -> Distribution:
        return distribution_of(self.driver)

    def trace(self) -> list[Span]:
        return list(self.driver.times.trace(self.driver.now_s).spans)

    def timing(self) -> tuple[float, float]:
        return self.train_s, self.samples / self.train_s if self.train_s else math.nan

    def snapshot(self) -> Snapshot:
        """Parameters to look at."""
        epochs = len(self.run_.run.epochs) if self.run_ is not None else self.driver.coordinator.epochs_done
        parameters = named_parameters(self.network, self.store.current, self.learner.local)
        return Snapshot(self.store.version, epochs, parameters)

    def events(self) -> EventRecord | None:
        return self.store.events() if self.store.recording else None

    def close(self) -> None:
        self.store.close()
        self.evaluator.close()
