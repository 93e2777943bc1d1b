"""Computes the parameters of a recorded run again, bit for bit: its tasks and updates in the order they had.

What two processes did at the same time becomes a sequence that can be stepped through.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from paceline.errors import RecordError
from paceline.record import load
from paceline.step.build import assemble, load_data
from paceline.step.step import Parts
from paceline.step.tally import Tally
from paceline.strategy.event_record import EVENTS, EventRecord, TaskRecord
from paceline.strategy.learner import Learner
from paceline.strategy.learner_state import LearnerState
from paceline.strategy.updater import GroupContribution, Payload, Updater
from paceline.workload import with_settings


def replay(parts: Parts, events: EventRecord, watch: Callable[[int, Tensor], None] | None = None) -> Tensor:
    """The flat parameters after the last update; `watch` is told each version, and must not change it.

    `parts` are of the recorded workload, on a CPU with as many threads as the run's workers had.
    """
    replayed = _Replay(parts, events)
    try:
        for update in events.updates:
            replayed.apply(update.update)
            if watch is not None:
                watch(update.update, replayed.versions[update.update])
        return replayed.versions[len(events.updates)]
    finally:
        replayed.learner.close()


def replay_run(
    directory: str | Path, watch: Callable[[int, Tensor], None] | None = None, *, cache: Path | None = None
) -> Tensor:
    """Replays the run in `directory`, which was made with `--record-events`, on the CPU."""
    place = Path(directory)
    if not (place / EVENTS).exists():
        raise RecordError(f"{place} has no {EVENTS}: a run to be replayed is recorded with --record-events")
    events = load(place / EVENTS)
    if not isinstance(events, EventRecord):
        raise RecordError(f"{place / EVENTS} holds no events")
    threads = load(place).conditions.threads if (place / "record.json").exists() else events.workload.threads
    workload = with_settings(events.workload, {"threads": threads})
    parts = assemble(workload, load_data(workload, cache), torch.device("cpu"))
    return replay(parts, events, watch)


class _Replay:
    def __init__(self, parts: Parts, events: EventRecord) -> None:
        self.events = events
        self.learner = Learner(parts, events.strategy, events.workers, fetches_stay=True)
        self.updater = Updater(events.strategy, self.learner.layout, events.workers)
        self.state = self.updater.initial_state()
        self.correction_state: dict[int, dict[str, Tensor]] = defaultdict(self.updater.initial_correction_state)
        self.versions: dict[int, Tensor] = {0: self.learner.initial()}
        self.wanted = Counter(version for task in events.tasks for version in task.versions)
        """How many fetches of a version are still to come; without any it is let go."""
        self.todo: dict[int, list[TaskRecord]] = defaultdict(list)
        for task in sorted(events.tasks, key=lambda t: (t.worker, t.sequence), reverse=True):
            self.todo[task.worker].append(task)
        self.states: dict[tuple[int, int], LearnerState] = {}
        self.fetched: dict[int, Tensor] = {}
        self.payloads: dict[tuple[int, int], tuple[Payload, Tensor]] = {}
        self.applied = {key for update in events.updates for one in update.contributions for key in one.payloads}
        """Of the other tasks nothing need be kept: they were dropped or refused."""

    def apply(self, number: int) -> None:
        order = self.events.updates[number - 1].order
        if order.update != number:
            raise RecordError(f"update {number} of the recorded run is missing: found {order.update}")
        given = []
        for contribution in order.contributions:
            found = [self._payload(task.worker, task.sequence) for task in contribution.tasks]
            state = self.correction_state[contribution.group]
            given.append(GroupContribution([payload for payload, _ in found], found[0][1], state, state))
        old = self.versions[number - 1]
        new = torch.empty_like(old)
        self.updater.apply(order, given, old, new, self.state, self.state)
        self.versions[number] = new
        if not self.wanted[number - 1]:
            del self.versions[number - 1]

    def _payload(self, worker: int, sequence: int) -> tuple[Payload, Tensor]:
        """That of a task; what its worker did before comes first, whatever became of it."""
        todo = self.todo[worker]
        while (worker, sequence) not in self.payloads:
            if not todo or todo[-1].sequence > sequence:
                raise RecordError(f"task {sequence} of worker {worker} is applied but not in the recorded run")
            task = todo.pop()
            made = self._computed(task)
            if (worker, task.sequence) in self.applied:
                self.payloads[worker, task.sequence] = made
        return self.payloads.pop((worker, sequence))

    def _computed(self, recorded: TaskRecord) -> tuple[Payload, Tensor]:
        learner, task, key = self.learner, recorded.task, (recorded.worker, recorded.incarnation)
        if key not in self.states:
            self.states.pop((recorded.worker, recorded.incarnation - 1), None)
            self.states[key] = learner.fresh()
        learner.load_state(self.states[key])
        out = learner.local.new_empty(learner.payload_size)
        learner.bind(out)
        versions = list(recorded.versions)

        def fetch(_: int) -> tuple[int, Tensor]:
            version = versions.pop(0)
            if version not in self.versions:
                raise RecordError(f"task {task.sequence} of worker {task.worker} fetched version {version} too early")
            self.fetched[task.worker] = found = self.versions[version]
            self._let_go(version)
            return version, found

        result = learner.run(task, fetch, out, Tally(learner.parts.workload.top))
        self.states[key] = learner.state()
        return Payload(out, result.samples, result.steps), self.fetched[task.worker]

    def _let_go(self, version: int) -> None:
        self.wanted[version] -= 1
        if not self.wanted[version] and version != max(self.versions):
            del self.versions[version]
