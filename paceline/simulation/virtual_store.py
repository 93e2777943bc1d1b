"""The parameters of a simulated run: a store in memory, and one learner for all workers."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import chain

import torch
from torch import Tensor

from paceline.simulation.links import MessageSizes
from paceline.step.step import Parts
from paceline.step.tally import Score, Tally
from paceline.strategy.event_record import EventRecord, TaskRecord
from paceline.strategy.finite import is_finite
from paceline.strategy.gradient_mean import Payload
from paceline.strategy.instructions import Compute
from paceline.strategy.learner import Learner
from paceline.strategy.learner_state import LearnerState
from paceline.strategy.memory_store import MemoryStore
from paceline.strategy.strategy import Strategy
from paceline.strategy.updater import Updater

UNREAD_STEPS = 4096  # outputs of so many steps may wait to be counted
SPARE_PAYLOADS = 64  # freed payloads that are used again


@dataclass(eq=False)
class _Worker:
    state: LearnerState
    held: dict[int, tuple[int, Tensor]] = field(default_factory=dict)
    """What was fetched for the task in hand, by position."""
    fetched: Tensor | None = None
    """The last of them, where a correction looks at it."""


class VirtualStore(MemoryStore):
    def __init__(self, parts: Parts, strategy: Strategy, workers: int, *, record: bool = False) -> None:
        self.parts, self.strategy = parts, strategy
        self.learner = Learner(parts, strategy, workers, fetches_stay=True)
        updater = Updater(strategy, self.learner.layout, workers, device=parts.device)
        super().__init__(updater, self.learner.initial(), record=record)
        self.workers: dict[int, _Worker] = {}
        """Those that are alive."""
        self._incarnations: Counter[int] = Counter()
        self.epoch_score = Score()
        """Of the epoch that ended last."""
        self.scores: dict[int, Score] = {}
        """Of each worker, over all epochs that have ended."""
        self.accuracies: dict[int, list[float]] = {}
        """Of each worker in each of them."""
        self.corrupted: set[int] = set()
        """Workers whose next payload is made non-finite on purpose."""
        top = parts.workload.top
        self._tallies = defaultdict[int, dict[int, Tally]](lambda: defaultdict(lambda: Tally(top)))
        """By epoch and worker."""
        self._unread = 0
        self._spare: list[Tensor] = []
        self._tasks: list[TaskRecord] = []
        self._workers = workers
        self._decoded = torch.empty_like(self.current)

    @property
    def messages(self) -> MessageSizes:
        layout = self.learner.layout
        payload_bytes = self.learner.payload_size * layout.torch_dtype.itemsize
        return MessageSizes.of(self.strategy, layout.size_bytes, payload_bytes)

    # What the driver reports

    def joined(self, worker: int) -> None:
        self.workers[worker] = _Worker(self.learner.fresh())
        self._incarnations[worker] += 1

    def fetched(self, worker: int, position: int, version: int, parameters: Tensor) -> None:
        """What a worker will compute on from a position of its task on."""
        self.workers[worker].held[position] = version, parameters

    def finished(self, task: Compute) -> tuple[int, bool]:
        """Computes the task's payload; the version it was computed on, and whether it is finite."""
        mine, learner = self.workers[task.worker], self.learner
        out = self._new_payload()
        learner.load_state(mine.state)
        result = learner.run(task, mine.held.__getitem__, out, self._tallies[task.epoch][task.worker])
        mine.state = learner.state()
        if mine.held:
            mine.fetched = mine.held[max(mine.held)][1]
        if task.worker in self.corrupted:
            self.corrupted.discard(task.worker)
            out[0] = math.nan
        fetched = mine.fetched if self.updater.needs_fetched else None
        self.payloads[task.worker, task.sequence] = Payload(out, result.samples, result.steps), fetched
        if self.recording:
            versions = tuple(mine.held[position][0] for position in sorted(mine.held))
            self._tasks.append(TaskRecord.of(task, self._incarnations[task.worker], versions))
        mine.held.clear()
        if not (self.updater.needs_fetched and learner.keeps_parameters):
            mine.fetched = None
        self._unread += len(task.batches)
        if self._unread > UNREAD_STEPS:
            self._unread = 0
            for tally in chain.from_iterable(of_epoch.values() for of_epoch in self._tallies.values()):
                tally.read()
        gradient = self.updater.decoding.gradient(out, self._decoded, task.fragment)
        return result.pulled, is_finite(gradient)

    def release(self, worker: int, sequence: int) -> None:
        payload, _ = self.payloads.pop((worker, sequence), (None, None))
        if payload is not None and len(self._spare) < SPARE_PAYLOADS:
            self._spare.append(payload.values)

    def died(self, worker: int) -> None:
        del self.workers[worker]

    # What comes of it

    def end_epoch(self, epoch: int) -> None:
        """All steps of an epoch are taken: `epoch_score` has their losses and accuracy."""
        total = Score()
        for worker, tally in sorted(self._tallies.pop(epoch, {}).items()):
            score = tally.read()
            self.scores[worker] = self.scores.get(worker, Score()) + score
            mine = self.accuracies.setdefault(worker, [])
            mine += [math.nan] * (epoch - len(mine))  # it was not there, or had nothing to do
            mine.append(score.accuracy)
            total += score
        self.epoch_score = total

    def score_so_far(self, epoch: int) -> Score:
        return sum((tally.read() for tally in self._tallies.get(epoch, {}).values()), Score())

    def events(self) -> EventRecord:
        assert self.updates is not None, "the run was not recorded"
        tasks, updates = tuple(self._tasks), tuple(self.updates)
        return EventRecord(self.parts.workload, self.strategy, self._workers, tasks, updates)

    def close(self) -> None:
        self.learner.close()

    def _new_payload(self) -> Tensor:
        if self._spare:
            return self._spare.pop()
        payload = self.current.new_empty(self.learner.payload_size)
        if len(self.payloads) < SPARE_PAYLOADS:
            self.learner.bind(payload)
        return payload
