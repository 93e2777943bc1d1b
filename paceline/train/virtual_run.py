"""Trains a workload on a virtual cluster in this process: real gradients and tests, simulated time."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter

from paceline import data, record, user_code
from paceline.data.dataset import Dataset
from paceline.errors import Diverged, Interrupted, WorkloadError
from paceline.simulate.gradients import Gradients
from paceline.simulate.simulation import EpochEnd, Simulation, Simulator
from paceline.simulate.virtual_cluster import VirtualCluster
from paceline.step.build import assemble, load_data
from paceline.step.choose import StepChoice
from paceline.step.placement import choose_device
from paceline.step.trial import unused_parameters
from paceline.strategy.distribution import Point
from paceline.strategy.event_record import EVENTS
from paceline.strategy.strategy import Strategy, preset
from paceline.testing.faults import Fault
from paceline.trace import Recorder
from paceline.train.checkpoint import Checkpoint, save_checkpoint
from paceline.train.conditions import current_conditions
from paceline.train.directory import check_new, new_directory
from paceline.train.evaluate import Evaluator
from paceline.train.failures import explained
from paceline.train.resuming import VIRTUAL
from paceline.train.run import Epoch, Run
from paceline.train.stopping import StopRequest
from paceline.train.watcher import CrewProgress, Progress, Silent, Watcher
from paceline.workload import Workload

LOOK_UP_S = 0.2


def run_virtual(
    workload: Workload,
    strategy: Strategy | str = "downpour",
    *,
    workers: int = 2,
    cluster: VirtualCluster | None = None,
    out: str | Path | None = None,
    cache: Path | None = None,
    progress: data.Progress | None = None,
    watcher: Watcher | None = None,
    on_bad_gradient: str = "stop",
    record_events: bool = False,
    faults: tuple[Fault, ...] = (),
) -> Run:
    """Trains `workload` with `workers` simulated workers and returns the record; with `out` it is kept there.

    With `record_events` what happened is kept too, to be replayed.
    """
    module = user_code.importing()
    if module:
        raise WorkloadError(f'importing {module} starts training; put that under: if __name__ == "__main__":')
    strategy = preset(strategy) if isinstance(strategy, str) else strategy
    options = _Options(strategy, workers, cluster or VirtualCluster(), on_bad_gradient, record_events, faults)
    strategy.check(workers)
    options.cluster.check(workers, faults)
    if out is not None:
        check_new(Path(out))
    recorder = Recorder()
    recorder.now()
    with explained(workload):
        dataset = load_data(workload, cache, progress)
    with explained(workload), _VirtualTraining(workload, dataset, options, recorder, watcher or Silent()) as training:
        if out is not None:
            training.directory = new_directory(Path(out))
        return training.train()


@dataclass(frozen=True)
class _Options:
    strategy: Strategy
    workers: int
    cluster: VirtualCluster
    on_bad_gradient: str
    record_events: bool
    faults: tuple[Fault, ...]


class _VirtualTraining:
    def __init__(
        self, workload: Workload, dataset: Dataset, options: _Options, recorder: Recorder, watcher: Watcher
    ) -> None:
        self.recorder, self.watcher = recorder, watcher
        self.directory: Path | None = None
        strategy, workers = options.strategy, options.workers
        device, note = choose_device(workload.device)
        self.parts = assemble(workload, dataset, device)
        try:
            unused_parameters(self.parts)
            self.evaluator = Evaluator(workload, self.parts.network, self.parts.phases, dataset, device)
            self.gradients = Gradients(self.parts, strategy, workers, record=options.record_events)
            self.simulator = Simulator(
                strategy, workers, options.cluster, batches=self.parts.updates_per_epoch, epochs=workload.epochs,
                seed=workload.seed, message_bytes=self.gradients.learner.layout.size_bytes, gradients=self.gradients,
                on_bad_gradient=options.on_bad_gradient, faults=options.faults, epoch_done=self._epoch_done,
                watch=self._watch,
            )  # fmt: skip
        except BaseException:
            self.parts.feeder.close()
            raise
        self.notes = [note] if note else []
        self.points: list[Point] = []
        self.stop = StopRequest()
        self.looked_s = self.epoch_began_s = perf_counter()
        self.shares_s: list[float] = []
        """Of the epochs that have ended together and are still to be told of."""
        self.samples = 0
        self.run = Run(
            workload=workload,
            conditions=current_conditions(device, workload.precision),
            step=StepChoice(VIRTUAL, f"{strategy.name} with {workers} simulated workers, one gradient after another"),
            parameters=self.gradients.learner.parameters,
            data=self.parts.feeder.where,
            distribution=self.simulator.distribution(),
        )

    def __enter__(self) -> _VirtualTraining:
        return self

    def __exit__(self, *error: object) -> None:
        self.gradients.close()
        self.evaluator.close()

    def train(self) -> Run:
        with self.stop:
            self._update_record("running")
            self.watcher.begun(self.run, self.notes)
            self.looked_s = self.epoch_began_s = perf_counter()
            try:
                found = self.simulator.run()
            except Diverged:
                self._update_record("diverged")
                raise
            except BaseException:  # also what fails has come so far, and no further
                self._update_record("interrupted")
                raise
            self.gradients.learner.show(self.gradients.current)
            self._update_record("finished", found)
            self._save()
        return self.run

    def _watch(self) -> None:
        """Now and then: draws the progress and looks whether to stop."""
        now_s = perf_counter()
        if now_s - self.looked_s < LOOK_UP_S:
            return
        self.looked_s = now_s
        if self.stop.made:
            kept = f"; what was reached is in {self.directory}" if self.directory else ""
            raise Interrupted(
                f"stopped after {self.simulator.now_s:g} virtual seconds{kept}; start it again to repeat it"
            )
        coordinator, gradients = self.simulator.coordinator, self.gradients
        epoch, epochs = len(self.points), self.run.workload.epochs
        if epoch == epochs:
            return
        batches = coordinator.batches
        score = gradients.score_so_far(epoch)
        spent_s = max(now_s - self.epoch_began_s, 1e-9)
        crew = CrewProgress(
            coordinator.alive, self.simulator.workers, coordinator.version / max(self.simulator.now_s, 1e-9),
            coordinator.ledger.summary().mean_staleness,
        )  # fmt: skip
        done = batches.closed(epoch) if epoch in batches.done else 0
        self.watcher.advanced(Progress(epoch, epochs, done, batches.an_epoch, score, score.samples / spent_s, crew))

    def _epoch_done(self, end: EpochEnd) -> None:
        began_s = perf_counter()
        if not self.shares_s:  # epochs that end together were trained together
            together = self.simulator.coordinator.epochs_done - end.epoch
            self.shares_s = [(began_s - self.epoch_began_s) / together] * together
        train_s = self.shares_s.pop()
        self.gradients.learner.show(end.parameters)
        test = self.evaluator.score()
        self.samples += end.score.samples
        done = Epoch(
            end.epoch + 1, end.score.loss, end.score.accuracy, end.score.top_accuracy, test.loss, test.accuracy,
            test.top_accuracy, train_s + perf_counter() - began_s, end.score.samples / max(train_s, 1e-9),
        )  # fmt: skip
        self.points.append(Point(done.epoch, end.seconds, end.updates, end.score.loss, test.loss, test.accuracy))
        self.run = replace(self.run, epochs=(*self.run.epochs, done), train_s=self.run.train_s + train_s)
        self._update_record("running")
        self._save()
        self.watcher.finished_epoch(done, self.run)
        self.epoch_began_s = perf_counter()

    def _update_record(self, status: str, found: Simulation | None = None) -> None:
        last = self.run.epochs[-1] if self.run.epochs else None
        distribution = found.distribution if found is not None else self.simulator.distribution()
        self.run = replace(
            self.run,
            status=status,
            wall_s=self.recorder.now(),
            samples_per_s=self.samples / self.run.train_s if self.run.train_s else math.nan,
            updates=distribution.updates,
            test_accuracy=last.test_accuracy if last else math.nan,
            test_top_accuracy=last.test_top_accuracy if last else math.nan,
            test_loss=last.test_loss if last else math.nan,
            distribution=replace(distribution, points=tuple(self.points)),
            trace=self.simulator.accounts.trace(self.simulator.now_s),
        )
        if self.directory is not None:
            record.save(self.run, self.directory / "record.json")
            if found is not None and found.events is not None:
                record.save(found.events, self.directory / EVENTS)

    def _save(self) -> None:
        if self.directory is None:
            return
        parameters = {name: t.detach().clone() for name, t in self.parts.network.state_dict().items()}
        dataset = self.parts.dataset
        checkpoint = Checkpoint(
            workload=self.run.workload,
            step_kind=VIRTUAL,
            epoch=len(self.run.epochs),
            next_step=0,
            updates=self.run.updates,
            samples=(len(dataset.train), len(dataset.test)),
            parameters=parameters,
            optimizer={},
            score={},
            record=json.dumps(record.to_json(self.run)),
        )
        save_checkpoint(checkpoint, self.directory)
