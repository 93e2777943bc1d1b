"""A distributed run from its beginning to its end, as the launcher sees it: epochs, tests, checkpoints, the record."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import sys
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from paceline import record
from paceline.data.dataset import Dataset
from paceline.errors import CheckpointError, Diverged, Interrupted
from paceline.step.choose import StepChoice
from paceline.step.tally import Score
from paceline.strategy.learner import Learner
from paceline.strategy.pieces import check_shards
from paceline.strategy.strategy import Strategy
from paceline.testing.faults import Fault
from paceline.trace import Recorder, Trace
from paceline.train.checkpoint import Checkpoint, load_parameters, save_checkpoint
from paceline.train.conditions import current_conditions
from paceline.train.evaluate import Evaluator
from paceline.train.local.accounts import Accounts
from paceline.train.local.collective import SHARED, UNTESTED, choose_collective
from paceline.train.local.crew import Crew, Patience
from paceline.train.local.doorbell import Doorbell
from paceline.train.local.epoch_tests import EpochTests
from paceline.train.local.event_log import write_events
from paceline.train.local.memory import Memory
from paceline.train.local.preparation import cache_text, eventfd, launcher_parts, lay_down, share_machine, sizes_of
from paceline.train.local.saved_state import KIND, copy_state, flat_parameters, named_parameters, put_state
from paceline.train.local.settings import Settings
from paceline.train.local.span_log import spans_of
from paceline.train.local.words import Control
from paceline.train.local.worker_measurements import wait_for_clocks
from paceline.train.run import Run
from paceline.train.stopping import StopRequest
from paceline.train.watcher import Watcher
from paceline.workload import Workload

LOOK_UP_S = 0.05
CHECKPOINT_SHARE = 0.02
SHOW_EVERY_S = 0.2


@dataclass(frozen=True)
class Options:
    strategy: Strategy
    workers: int
    cache: Path | None
    on_bad_gradient: str
    record_events: bool
    patience: Patience
    checkpoint_every_s: float
    faults: tuple[Fault, ...]
    measure: Path | None = None
    shards: int = 1
    collective: str = "auto"


class LocalTraining:
    def __init__(
        self, workload: Workload, dataset: Dataset, options: Options, recorder: Recorder, watcher: Watcher
    ) -> None:
        self.options, self.recorder, self.watcher = options, recorder, watcher
        self.directory: Path | None = None
        with ExitStack() as opened:  # closed again when something fails half way
            self._prepare(workload, dataset, opened)
            self._opened = opened.pop_all()

    def _prepare(self, workload: Workload, dataset: Dataset, opened: ExitStack) -> None:
        options, recorder = self.options, self.recorder
        strategy, workers, shards = options.strategy, options.workers, options.shards
        with recorder.span("prepare"):
            share = share_machine(workload, dataset, workers, shards)
            collective = choose_collective(
                options.collective, strategy, workers, share.devices, record_events=options.record_events
            )
            parts = launcher_parts(workload, dataset, share)
            strategy.check(workers, parts.updates_per_epoch)
            self.learner = Learner(parts, strategy, workers)
            opened.callback(self.learner.close)
            layout = self.learner.layout
            check_shards(shards, strategy, layout)
            sizes = sizes_of(
                strategy, layout, workers, record_events=options.record_events, on_cpu=parts.device.type == "cpu",
                shards=shards,
            )  # fmt: skip
            self.memory = Memory(sizes)
            opened.callback(self.memory.close)
            self.bells = [self._bell(opened) for _ in range(workers + 1 + shards)]
            evaluator = Evaluator(workload, parts.network, parts.phases, dataset, parts.device)
            opened.callback(evaluator.close)
        self.parts, self.notes = parts, [*share.notes, *([UNTESTED] if collective == "nccl" else [])]
        how = f"{strategy.name}, {workers} workers and {_server(shards)} in shared memory"
        if collective != SHARED:
            how += f", groups add up with {collective}{' (untested on several GPUs)' * (collective == 'nccl')}"
        self.run = Run(
            workload=workload,
            conditions=replace(current_conditions(parts.device, workload.precision), threads=share.threads),
            step=StepChoice("flat", how),
            parameters=sum(p.numel() for p in parts.network.parameters()),
            data=f"all {len(dataset.train):,} samples at every worker",
        )
        lay_down(self.memory, strategy, self.learner)
        settings = Settings(
            parent=os.getpid(), memory=self.memory.descriptor, wake_launcher=self.bells[0], wake_server=self.bells[1],
            wake_workers=tuple(self.bells[2 : workers + 2]), wake_shards=tuple(self.bells[workers + 2 :]), sizes=sizes,
            strategy=strategy, layout=layout, workload=workload, workers=workers, threads=share.threads, number=0,
            life=1, device="cpu", cache=cache_text(options.cache),
            search_path=tuple(str(Path(place or ".").resolve()) for place in sys.path),
            on_bad_gradient=options.on_bad_gradient, faults=options.faults,
            measure=str(options.measure.resolve()) if options.measure is not None else "",
            collective=collective, rendezvous=self._rendezvous(opened) if collective != SHARED else 0,
        )  # fmt: skip
        self.crew = Crew(self.memory, settings, share.devices, options.patience, options.faults)
        self.accounts = Accounts(self.memory, self.crew, self.run, strategy, len(dataset.train))
        self.tests = EpochTests(self.memory, self.learner, evaluator, self.crew.bell_of_server)
        opened.callback(self.tests.close)
        self.bell = Doorbell(self.memory, workers + 1, self.bells[0])
        self.tested: tuple[int, Score] | None = None
        """An epoch whose test is done, while its losses are still being told."""
        self.wall_before_s = 0.0
        self.saved_at_s, self.saving_s, self.shown_at_s = 0.0, 0.0, 0.0

    @staticmethod
    def _rendezvous(opened: ExitStack) -> int:
        """Where the members of a group find each other: the port."""
        from paceline.train.local.communicator import Rendezvous

        made = Rendezvous()
        opened.callback(made.close)
        return made.port

    @staticmethod
    def _bell(opened: ExitStack) -> int:
        bell = eventfd()
        opened.callback(os.close, bell)
        return bell

    def __enter__(self) -> LocalTraining:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        self.crew.stop()
        if kind is not None and issubclass(kind, Diverged):
            self._update_record("diverged")
        self._opened.close()

    def restore(self, checkpoint: Checkpoint, place: Path) -> None:
        samples = (len(self.parts.dataset.train), len(self.parts.dataset.test))
        if samples != checkpoint.samples:
            before, now = (f"{train:,} + {test:,}" for train, test in (checkpoint.samples, samples))
            raise CheckpointError(f"{place} is of {before} samples, {self.run.workload.data} now has {now}")
        load_parameters(self.parts.network, checkpoint, place)
        flat = flat_parameters(self.parts.network, checkpoint.parameters, self.learner.local)
        put_state(self.memory, checkpoint.updates, flat, checkpoint.optimizer, str(place))
        before_run: Run = record.from_json(Run, json.loads(checkpoint.record), "record")
        self.wall_before_s = before_run.wall_s
        self.run = replace(self.run, epochs=before_run.epochs, resumed=before_run.resumed + 1)
        saved = checkpoint.optimizer.get("worker_scores", [{}] * self.options.workers)
        by_worker = [Score(**score) for score in saved]
        self.accounts.go_on_after(before_run, Score(**checkpoint.score), by_worker)

    def train(self) -> Run:
        with StopRequest() as stop:
            self._update_record("running")
            self._save()
            self.crew.start()
            with self.recorder.span("start"):
                while not (self.crew.complete or stop.made):
                    self.bell.lie_down()
                    self.bell.sleep(LOOK_UP_S)
                    self.crew.look()
            self.watcher.begun(self.run, self.notes)
            self.accounts.begin()
            with self.recorder.span("train"):
                while not (stop.made or self._is_over()):
                    self.bell.lie_down()
                    self.bell.sleep(LOOK_UP_S)
                    self._look()
            if not self._is_over():
                self._interrupt()
            self.accounts.end()
            if self.options.measure is not None:
                wait_for_clocks(self.options.measure, self.options.workers)
            self._update_record("finished")
            self._save()
            self._update_record("finished")
            if self.options.record_events and self.directory is not None:
                write_events(self.memory, self.run.workload, self.options.strategy, self.directory)
        return self.run

    def _is_over(self) -> bool:
        return bool(self.memory.control[Control.FINISHED]) and len(self.run.epochs) == self.run.workload.epochs

    def _look(self) -> None:
        if not self.memory.control[Control.FINISHED]:
            self.crew.look()
        self.accounts.look()
        self._look_at_tests()
        if self.recorder.now() - self.shown_at_s >= SHOW_EVERY_S:
            self.shown_at_s = self.recorder.now()
            self.watcher.advanced(self.accounts.progress())
        self._save_now_and_then()

    def _look_at_tests(self, wait: bool = False) -> None:
        if self.tested is None:
            self.tested = self.tests.look(wait)
        if self.tested is not None and (wait or self.accounts.is_told(self.tested[0])):
            self._finish_epoch(*self.tested)
            self.tested = None

    def _finish_epoch(self, epoch: int, test: Score) -> None:
        done = self.accounts.epoch(epoch, test)
        self.run = replace(self.run, epochs=(*self.run.epochs, done))
        self._update_record("running")
        self.watcher.finished_epoch(done, self.run)

    def _interrupt(self) -> None:
        self.crew.stop()
        self._save()
        self._update_record("interrupted")
        where = f"stopped in epoch {len(self.run.epochs) + 1} after update {self.run.updates}"
        if self.directory is None:
            raise Interrupted(f"{where}; nothing was kept, since no directory was given")
        raise Interrupted(f"{where}; go on with: paceline train --resume {self.directory}")

    def _update_record(self, status: str) -> None:
        last = self.run.epochs[-1] if self.run.epochs else None
        self.run = replace(
            self.run,
            status=status,
            wall_s=self.wall_before_s + self.recorder.now(),
            train_s=self.accounts.train_s,
            samples_per_s=self.accounts.samples_per_s,
            updates=self.memory.control[Control.VERSION],
            test_accuracy=last.test_accuracy if last else math.nan,
            test_top_accuracy=last.test_top_accuracy if last else math.nan,
            test_loss=last.test_loss if last else math.nan,
            distribution=self.accounts.distribution(),
        )
        if status != "running":
            spans = spans_of(self.memory, self.recorder.origin_s or 0.0)
            self.run = replace(self.run, trace=Trace((*self.recorder.spans, *spans)))
        if self.directory is not None:
            record.save(self.run, self.directory / "record.json")

    def _save_now_and_then(self) -> None:
        """At the end of an epoch and when the last is old enough, but rarely enough that it costs little."""
        every_s = self.options.checkpoint_every_s
        pause_s = every_s and max(every_s, self.saving_s / CHECKPOINT_SHARE)
        age_s = self.recorder.now() - self.saved_at_s
        tested = len(self.run.epochs) == self.memory.control[Control.EPOCHS_DONE]
        if age_s >= pause_s and (tested or age_s >= 2 * pause_s):  # else it would have to wait for a test
            self._save()

    def _wait_for_others(self) -> None:
        """One of them writes, and may be dead, hang, or wait for an epoch's parameters to be taken."""
        if not self.memory.control[Control.FINISHED]:
            self.crew.look()
        self._look_at_tests()

    def _save(self) -> None:
        """While the processes go on: what is saved is one version of everything."""
        if self.directory is None:
            return
        with self.recorder.span("checkpoint"):
            start_s = self.recorder.now()
            version, parameters, state = copy_state(self.memory, self.options.strategy, self._wait_for_others)
            done = state["epochs_done"]
            while len(self.run.epochs) < done:  # their parameters would be lost
                self._look_at_tests(wait=True)
            by_worker = [self.accounts.worker_score(number) for number in range(self.options.workers)]
            so_far = replace(
                self.run,
                wall_s=self.wall_before_s + start_s,
                updates=version,
                epochs=self.run.epochs[:done],
                distribution=self.accounts.distribution(),
            )
            save_checkpoint(
                Checkpoint(
                    workload=self.run.workload,
                    step_kind=KIND,
                    epoch=done,
                    next_step=0,
                    updates=version,
                    samples=(len(self.parts.dataset.train), len(self.parts.dataset.test)),
                    parameters=named_parameters(self.parts.network, parameters, self.learner.local),
                    optimizer={**state, "worker_scores": [dataclasses.asdict(score) for score in by_worker]},
                    score=dataclasses.asdict(self.accounts.score(done)),
                    record=json.dumps(record.to_json(so_far)),
                ),
                self.directory,
            )
        self.saved_at_s = self.recorder.now()
        self.saving_s = self.saved_at_s - start_s


def _server(shards: int) -> str:
    return "a server" if shards == 1 else f"a server of {shards} shards"
