"""Computes the parameters of a recorded run again, bit for bit: its tasks and updates in the order they had.

What two processes did at the same time becomes a sequence that can be stepped through.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from contextlib import closing
from pathlib import Path

import torch
from torch import Tensor

from paceline.errors import RecordError
from paceline.record import load
from paceline.simulation.virtual_store import VirtualStore
from paceline.step.build import assemble, load_data
from paceline.step.placement import cpu_settings_restored
from paceline.step.step import Parts
from paceline.strategy.event_record import EVENTS, EventRecord, TaskRecord
from paceline.strategy.instructions import Apply
from paceline.workload import with_settings


def replay(parts: Parts, events: EventRecord) -> Tensor:
    """The flat parameters after the last update.

    `parts` are of the recorded workload, on a CPU with as many threads as the run's workers had.
    """
    replayed = _Replay(parts, events)
    with closing(replayed.store):
        for update in events.updates:
            replayed.apply(update.order)
        return replayed.store.current


@cpu_settings_restored()
def replay_run(directory: str | Path, *, cache: Path | None = None) -> Tensor:
    """Replays the run in `directory`, which was made with `record_events`, on the CPU."""
    place = Path(directory)
    if not (place / EVENTS).exists():
        raise RecordError(f"{place} has no {EVENTS}: only runs made with `record_events=True` can be replayed")
    events = load(place / EVENTS)
    if not isinstance(events, EventRecord):
        raise RecordError(f"{place / EVENTS} holds no events")
    threads = load(place).conditions.threads if (place / "record.json").exists() else events.workload.threads
    workload = with_settings(events.workload, {"threads": threads})
    parts = assemble(workload, load_data(workload, cache), torch.device("cpu"))
    return replay(parts, events)


class _Replay:
    def __init__(self, parts: Parts, events: EventRecord) -> None:
        self.store = VirtualStore(parts, events.strategy, events.workers)
        self.versions: dict[int, Tensor] = {0: self.store.current}
        self.wanted = Counter(version for task in events.tasks for version in task.versions)
        """How many fetches of a version are still to come; without any it is released."""
        self.todo: dict[int, list[TaskRecord]] = defaultdict(list)
        for task in sorted(events.tasks, key=lambda t: (t.worker, t.sequence), reverse=True):
            self.todo[task.worker].append(task)
        self.incarnations: dict[int, int] = {}
        self.applied = {key for update in events.updates for one in update.contributions for key in one.payloads}
        """Payloads of other tasks were dropped or refused."""
        self.tasks = {(recorded.worker, recorded.sequence): recorded.task for recorded in events.tasks}

    def apply(self, order: Apply) -> None:
        number = self.store.version + 1
        if order.update != number:
            raise RecordError(f"update {number} of the recorded run is missing: found {order.update}")
        tasks = [task for contribution in order.contributions for task in contribution.tasks]
        for task in tasks:
            self._compute_up_to(task.worker, task.sequence)
        turn = self.store.learner.turns.turn_of(self.tasks[tasks[0].worker, tasks[0].sequence])
        self.store.apply(order._replace(turn=turn))
        for task in tasks:
            self.store.release(task.worker, task.sequence)
        self.versions[number] = self.store.current
        if not self.wanted[number - 1]:
            del self.versions[number - 1]

    def _compute_up_to(self, worker: int, sequence: int) -> None:
        """A task changes what its worker keeps, whatever becomes of its payload: so all before are computed, too."""
        todo = self.todo[worker]
        while (worker, sequence) not in self.store.payloads:
            if not todo or todo[-1].sequence > sequence:
                raise RecordError(f"task {sequence} of worker {worker} is applied but not in the recorded run")
            recorded = todo.pop()
            self._compute(recorded)
            if (worker, recorded.sequence) not in self.applied:
                self.store.release(worker, recorded.sequence)

    def _compute(self, recorded: TaskRecord) -> None:
        task, worker = recorded.task, recorded.worker
        if self.incarnations.get(worker) != recorded.incarnation:
            self.incarnations[worker] = recorded.incarnation
            self.store.joined(worker)
        positions = (*task.fetches, len(task.batches))  # some exchanges fetch once more before they push
        for position, version in zip(positions, recorded.versions, strict=False):
            if version not in self.versions:
                raise RecordError(f"task {task.sequence} of worker {worker} fetched version {version} too early")
            self.store.fetched(worker, position, version, self.versions[version])
            self.wanted[version] -= 1
            if not self.wanted[version] and version != max(self.versions):
                del self.versions[version]
        self.store.finished(task)
