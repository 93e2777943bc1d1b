"""The mathematics of a simulated run: one learner for all workers, the server, and parameters shared by version.

Every update makes a new tensor that nobody overwrites; workers that fetched the same version hold the same one, and
it is gone when the last of them lets go.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass, field

import torch
from torch import Tensor

from paceline.step.step import Parts
from paceline.step.tally import Score, Tally
from paceline.strategy.event_record import EventRecord, TaskRecord, UpdateRecord
from paceline.strategy.instructions import Apply, Compute
from paceline.strategy.learner import Learner, LearnerState
from paceline.strategy.refusals import is_finite
from paceline.strategy.server import Given, Payload, Server
from paceline.strategy.strategy import Strategy

UNREAD_STEPS = 4096  # outputs of so many steps may wait to be counted
SPARE_PAYLOADS = 64


@dataclass(eq=False)
class _Worker:
    state: LearnerState
    life: int = 1
    held: OrderedDict[int, tuple[int, Tensor]] = field(default_factory=OrderedDict)
    """What was fetched for the task in hand, by position."""
    versions: list[int] = field(default_factory=list)
    backup: Tensor | None = None


class Gradients:
    def __init__(self, parts: Parts, strategy: Strategy, workers: int, *, record: bool = False) -> None:
        self.parts, self.strategy = parts, strategy
        self.learner = Learner(parts, strategy, workers, fetches_stay=True)
        self.server = Server(strategy, self.learner.layout, workers)
        self.version = 0
        self.current = self.learner.initial()
        self.state = self.server.initial_state()
        self.kept: dict[int, dict[str, Tensor]] = {}
        self.workers: dict[int, _Worker] = {}
        self.payloads: dict[tuple[int, int], tuple[Payload, Tensor | None]] = {}
        self.scores: dict[int, Score] = {}
        """Of each worker, over the epochs that are over."""
        self.accuracies: dict[int, list[float]] = {}
        """Of each worker in each of them."""
        self.corrupted: set[int] = set()
        """Workers whose next payload is spoilt on purpose."""
        self._tallies: dict[int, dict[int, Tally]] = {}
        self._unread = 0
        self._spare: list[Tensor] = []
        self._tasks: list[TaskRecord] | None = [] if record else None
        self._updates: list[UpdateRecord] = []
        self._workers = workers

    @property
    def recording(self) -> bool:
        return self._tasks is not None

    # What the driver tells

    def joined(self, worker: int) -> None:
        before = self.workers.get(worker)
        self.workers[worker] = _Worker(self.learner.fresh(), 1 if before is None else before.life + 1)

    def fetched(self, worker: int, position: int, version: int, parameters: Tensor) -> None:
        """What a worker will compute on from a position of its task on."""
        mine = self.workers[worker]
        mine.held[position] = version, parameters
        mine.versions.append(version)

    def finished(self, task: Compute) -> tuple[int, bool]:
        """Computes the task's payload; the version it was computed on, and whether it is made of numbers."""
        mine, learner = self.workers[task.worker], self.learner
        out = self._spare.pop() if self._spare else torch.empty_like(self.current)
        tally = self._tally(task)
        learner.load_state(mine.state)
        learner.begin(task, out)
        for position in range(len(task.batches)):
            if position in mine.held:
                version, parameters = mine.held[position]
                learner.fetch(version, parameters)
                mine.backup = parameters
            learner.step(tally)
        centre = mine.held.get(len(task.batches))
        result = learner.finish(centre)
        mine.state = learner.state()
        if task.worker in self.corrupted:
            self.corrupted.discard(task.worker)
            out[0] = math.nan
        backup = (centre[1] if centre is not None else mine.backup) if self.server.needs_backup else None
        self.payloads[task.worker, task.sequence] = Payload(out, result.samples, result.steps), backup
        if self._tasks is not None:
            self._tasks.append(
                TaskRecord(
                    task.worker, task.sequence, mine.life, task.epoch, task.batches, task.fetches, tuple(mine.versions)
                )
            )
        mine.held.clear()
        mine.versions.clear()
        if not (self.server.needs_backup and learner.keeps_parameters):
            mine.backup = None
        self._unread += len(task.batches)
        if self._unread > UNREAD_STEPS:
            self._read_all()
        return result.pulled, is_finite(out)

    def apply(self, order: Apply) -> None:
        given = []
        for contribution in order.contributions:
            found = [self.payloads.pop(key) for key in contribution.payloads]
            kept = self._kept(contribution.group)
            given.append(Given([payload for payload, _ in found], found[0][1], kept, kept))
        new = torch.empty_like(self.current)
        self.server.apply(order, given, self.current, new, self.state, self.state)
        self.current, self.version = new, order.update
        for one in given:
            for payload in one.payloads:
                self._give_back(payload.values)
        if self._tasks is not None:
            self._updates.append(UpdateRecord.of(order))

    def dropped(self, worker: int, sequence: int) -> None:
        found = self.payloads.pop((worker, sequence), None)
        if found is not None:
            self._give_back(found[0].values)

    def died(self, worker: int) -> None:
        mine = self.workers[worker]
        self.workers[worker] = _Worker(self.learner.fresh(), mine.life)

    # What comes of it

    def epoch_score(self, epoch: int) -> Score:
        """Losses and accuracy of an epoch's steps, as they were taken; the epoch is over then."""
        total = Score()
        for worker, tally in sorted(self._tallies.pop(epoch, {}).items()):
            score = tally.read()
            self.scores[worker] = self.scores.get(worker, Score()) + score
            mine = self.accuracies.setdefault(worker, [])
            mine += [math.nan] * (epoch - len(mine))  # it was not there, or had nothing to do
            mine.append(score.accuracy)
            total += score
        return total

    def score_so_far(self, epoch: int) -> Score:
        return sum((tally.read() for tally in self._tallies.get(epoch, {}).values()), Score())

    def events(self) -> EventRecord:
        assert self._tasks is not None, "the run was not recorded"
        updates = tuple(self._updates)
        return EventRecord(self.parts.workload, self.strategy, self._workers, tuple(self._tasks), updates)

    def close(self) -> None:
        self.learner.close()

    def _kept(self, group: int) -> dict[str, Tensor]:
        if group not in self.kept:
            self.kept[group] = self.server.initial_kept()
        return self.kept[group]

    def _give_back(self, payload: Tensor) -> None:
        if len(self._spare) < SPARE_PAYLOADS:
            self._spare.append(payload)

    def _tally(self, task: Compute) -> Tally:
        of_epoch = self._tallies.setdefault(task.epoch, {})
        if task.worker not in of_epoch:
            of_epoch[task.worker] = Tally(self.parts.workload.top)
        return of_epoch[task.worker]

    def _read_all(self) -> None:
        self._unread = 0
        for of_epoch in self._tallies.values():
            for tally in of_epoch.values():
                tally.read()
