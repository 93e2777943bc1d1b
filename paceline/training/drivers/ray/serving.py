"""The parameter server without threads or Ray: the engine's two ports, and what a worker's calls mean to them.

The store is plain memory; the transport is a mailbox per worker, which the actor in `server.py` empties.
"""

from __future__ import annotations

import math
import time
from dataclasses import asdict

import torch
from torch import Tensor

from paceline.record import from_json, to_json
from paceline.step.denormals import flush_denormals
from paceline.step.tally import Score
from paceline.strategy.coordinator import Coordinator
from paceline.strategy.distribution import FaultRecord
from paceline.strategy.engine import Engine
from paceline.strategy.event_record import EventRecord, TaskRecord
from paceline.strategy.gradient_mean import Payload
from paceline.strategy.instructions import Apply, Compute
from paceline.strategy.memory_store import MemoryStore
from paceline.strategy.position import Position
from paceline.strategy.updater import Updater
from paceline.trace import Span
from paceline.training.drivers.ray.formations import Formations
from paceline.training.drivers.ray.job import Job
from paceline.training.drivers.ray.mailbox import Fetched, Mailbox
from paceline.training.drivers.ray.messages import Call, Formation, Push, ServerState, Status, WorkerReport
from paceline.training.drivers.ray.pieces import Array, Pieces
from paceline.training.drivers.ray.scoreboard import Scoreboard
from paceline.training.drivers.ray.timeline import TimedSpan, Timeline

REFUSALS_KEPT = 64
LATE_EPOCHS = 8
"""Epochs that are over whose losses workers may still report."""


class ServedTraining:
    def __init__(
        self, job: Job, state: ServerState, mailboxes: list[Mailbox], join_within_s: float = math.inf
    ) -> None:  # fmt: skip
        """Continues from `state` once all workers have joined or died, or after `join_within_s`."""
        self.job, self.mailboxes, self.awaited = job, mailboxes, set(range(job.workers))
        self._join_until_s = time.monotonic() + join_within_s
        layout, strategy = job.layout, job.strategy
        self.updater = Updater(strategy, layout, job.workers, job.server_threads)
        self.store = MemoryStore(self.updater, state.parameters.clone(), record=job.record_events)
        ahead = 1
        if strategy.overlap:  # with fragments, a worker asks for a task before the round before the last is committed
            ahead = 2 if strategy.fragments is None else 3
        self.coordinator = Coordinator(
            strategy, job.workers, layout.batches, layout.epochs, ahead=ahead, turns=self.updater.turns.count
        )
        for worker in range(job.workers):  # rounds have a part for each of them, whoever joins first
            self.coordinator.rounds.expect(worker)
        self.engine = Engine(self.coordinator, self, self, job.on_bad_gradient)
        self.scoreboard, self.timeline = Scoreboard(job.workers), Timeline()
        self.payloads = Pieces(job.payload_size, layout.torch_dtype)
        self.formations = Formations(job, mailboxes)
        self.joining: list[int] = []
        self.joined = [0] * job.workers
        self.nodes: dict[int, str] = {}
        """By worker."""
        self.tasks: list[TaskRecord] = []
        self.epochs: dict[int, tuple[int, Tensor, float]] = {}
        """Version, parameters and end of the epochs from the one on that the launcher took last."""
        self.kept: tuple[int, ServerState] | None = None
        self.refusals: list[FaultRecord] = []
        self.refusal_count = 0
        self.updating_s = 0.0
        self.began_s: float | None = None
        self._rounds: dict[int, tuple[int, int, Tensor]] = {}
        """For each group its round, and the version and parameters of the round's first fetch."""
        if state.saved is not None:
            self._restore(state)
        self.first_epoch = self.coordinator.epochs_done

    def count_on_from(self, before: ServedTraining) -> None:
        """Takes over what a former training has counted, since it began."""
        self.epochs, self.refusals, self.began_s = before.epochs, before.refusals, before.began_s

    def _restore(self, state: ServerState) -> None:
        assert state.saved is not None
        saved = state.saved
        position: Position = from_json(Position, saved["position"], "position")
        if position.version:  # what would be recorded is only about a part
            self.store.updates = None
        self.store.restore(position.version, self.store.current, saved)
        self.coordinator.restore(position)
        self.updating_s, self.refusal_count = saved["update_ns"] / 1e9, int(saved["refusals"])
        totals = [Score(**score) for score in saved["worker_scores"]]
        self.scoreboard.restore(totals, self.coordinator.epochs_done, state.score)

    def snapshot(self) -> ServerState:
        """One consistent version of everything, in the format of a checkpoint."""
        saved = {
            **self.store.saved(self.job.groups),
            "position": to_json(self.coordinator.position()),
            "update_ns": int(self.updating_s * 1e9),
            "refusals": self.refusal_count,
            "worker_scores": [asdict(score) for score in self.scoreboard.totals()],
        }
        done = self.coordinator.epochs_done
        return ServerState(self.store.current, saved, self.scoreboard.epoch(done), done, self.store.version)

    def status(self, now_s: float) -> Status:
        """How the training is doing; what the actor knows beside it is left out."""
        coordinator, board = self.coordinator, self.scoreboard
        epoch, batches = coordinator.epochs_done, coordinator.batches
        late = range(max(self.first_epoch, epoch - LATE_EPOCHS), epoch + 1)
        return Status(
            "",
            begun=True,
            version=coordinator.version,
            epochs_done=epoch,
            closed=batches.closed(epoch) if epoch in batches.done else 0,
            alive=coordinator.alive,
            nodes=len(set(self.nodes.values())),
            computing=tuple(number for number, mailbox in enumerate(self.mailboxes) if mailbox.is_computing),
            joined=tuple(self.joined),
            updating_s=self.updating_s,
            began_ago_s=None if self.began_s is None else now_s - self.began_s,
            epoch_ended_ago_s={number: now_s - kept[2] for number, kept in self.epochs.items()},
            ledger=coordinator.ledger.summary(),
            refusals=tuple(self.refusals),
            scores={number: board.epoch(number) for number in late},
            by_worker=tuple(board.report(worker) for worker in range(self.job.workers)),
            totals=board.totals(),
            accuracies=board.accuracies(self.first_epoch, epoch),
        )

    def events(self) -> EventRecord | None:
        if self.store.updates is None:
            return None
        job = self.job
        return EventRecord(job.workload, job.strategy, job.workers, tuple(self.tasks), tuple(self.store.updates))

    def trace(self) -> list[Span]:
        """The first spans of all workers and of the server, in seconds after the run began."""
        return [] if self.began_s is None else self.timeline.since(self.began_s)

    # What workers do

    def join(self, call: Call, is_near: bool) -> None:
        mailbox = self.mailboxes[call.worker]
        if mailbox.incarnation:
            self.leave(call.worker)
        mailbox.incarnation, mailbox.is_near = call.incarnation, is_near
        self.joined[call.worker] = call.incarnation
        self.nodes[call.worker] = call.node
        self.scoreboard.joined(call.worker)
        self.coordinator.starts_anew(call.worker)
        self.awaited.discard(call.worker)
        self.joining.append(call.worker)

    def died(self, worker: int) -> None:
        """Reassigns the unfinished tasks of a dead worker."""
        self.awaited.discard(worker)
        if self.mailboxes[worker].incarnation:
            self.leave(worker)

    def leave(self, worker: int) -> None:
        self.mailboxes[worker].clear()
        self.keep_payload(worker)  # it may be there, and join again
        self.formations.dissolve(worker)
        if worker in self.joining:
            self.joining.remove(worker)
        self.engine.died(worker)

    @property
    def should_begin(self) -> bool:
        """Workers wait, and all are there or have had the time: nobody should do the parts of one that comes late."""
        return bool(self.joining) and not (self.awaited and time.monotonic() < self._join_until_s)

    def begin_together(self) -> None:
        """Lets all waiting workers start."""
        joining, self.joining = sorted(self.joining), []
        if self.began_s is None:
            self.began_s = time.monotonic()
        self.engine.joined(*joining)

    def report(self, worker: int, report: WorkerReport) -> None:
        self.scoreboard.add(worker, report)
        self.timeline.add(f"worker {worker}", *report.spans)

    def take(self, worker: int) -> tuple[Compute, Formation | None, int, Tensor | None]:
        """A worker's next task, with whom it averages, and the version and parameters if its first step fetches.

        A member of a formation is given its part of the parameters.
        """
        task = self.mailboxes[worker].take()
        formation = self.formations.of(task)
        if 0 not in task.fetches or self.job.strategy.fragments is not None:  # these fetch when the update is made
            return task, formation, 0, None
        version, parameters = self.fetch(worker, task.sequence, 0)
        if formation is not None:
            parameters = self.formations.parts.of(formation.rank, parameters)
        return task, formation, version, parameters

    def push(self, worker: int, push: Push, pieces: tuple[Array, ...]) -> None:
        """A worker's payload, or its part of a mean, which waits for the others."""
        if push.is_part:
            for member, (one, mean) in (self.formations.add(worker, push, pieces) or {}).items():
                self._pushed(member, one, mean)
            return
        if self.formations.is_averaged(worker):
            self.formations.dissolve(worker)
        self._pushed(worker, push, Payload(self.payloads.joined(pieces), push.samples, push.steps))

    def _pushed(self, worker: int, push: Push, payload: Payload | None) -> None:
        """None if the payload is part of a mean that another member's push completes."""
        mailbox = self.mailboxes[worker]
        task = mailbox.computing.pop(push.sequence)
        mailbox.last = mailbox.held.pop(push.sequence, mailbox.last)
        fetched = mailbox.last.parameters if mailbox.last is not None and self.updater.needs_fetched else None
        if self.store.recording:
            self.tasks.append(TaskRecord.of(task, mailbox.incarnation, push.versions))
        self.store.payloads[worker, push.sequence] = payload, fetched
        self.engine.pushed(worker, push.sequence, push.pulled, push.finite)

    def keep_payload(self, worker: int, memory: Tensor | None = None) -> None:
        """Copies a payload that still waits for its update: its worker will overwrite the memory that it is in."""
        for key, (payload, fetched) in self.store.payloads.items():
            if key[0] != worker or payload is None:
                continue
            if memory is None or payload.values.data_ptr() == memory.data_ptr():
                self.store.payloads[key] = payload._replace(values=payload.values.clone()), fetched

    def fetch(self, worker: int, sequence: int, position: int) -> tuple[int, Tensor]:
        """The newest version, or a fragment of it and the buffers; all of a round's tasks find what its first fetch
        found."""
        task = self.mailboxes[worker].computing[sequence]
        version, parameters = self.store.version, self.store.current
        if task.round is not None and position < len(task.batches):
            group = self.job.strategy.group_of(worker, self.job.workers)
            begun = self._rounds.get(group)
            if begun is None or begun[0] != task.round:
                begun = self._rounds[group] = task.round, version, parameters
            version, parameters = begun[1:]
        self.mailboxes[worker].held[sequence] = Fetched(version, parameters)
        fragments = self.updater.fragments
        if fragments is not None and not task.whole:
            fragment, buffers = parameters[fragments.fetched_piece(task.fragment)], parameters[fragments.parameters :]
            parameters = torch.cat([fragment, buffers]) if len(buffers) else fragment
        return version, parameters

    def take_epoch(self, epoch: int) -> tuple[int, Tensor, float] | None:
        """Version, parameters and end of an epoch. It is kept until a later one is taken: the answer may be lost."""
        for before in [number for number in self.epochs if number < epoch]:
            del self.epochs[before]
        return self.epochs.get(epoch)

    def keep(self, number: int) -> None:
        """Keeps this version of everything, until it is asked for by its number or another one is kept."""
        self.kept = number, self.snapshot()

    # The engine's ports

    def commit(self, order: Apply) -> bool:
        start_s = time.monotonic()
        flush_denormals()  # a setting of the thread, and Ray takes any of the actor's
        self.store.apply(order)
        end_s = time.monotonic()
        self.updating_s += end_s - start_s
        self.timeline.add("server", TimedSpan("update", start_s, end_s))
        if self.updater.fragments is not None:
            for mailbox in self.mailboxes:  # fetches that wait for it
                mailbox.bell.notify_all()
        return True

    def discard(self, task: Compute, refused: bool) -> None:
        if refused:
            self.refusal_count += 1
            note = f"not finite, epoch {task.epoch + 1}, batch {task.batches[0]}"
            if len(self.refusals) < REFUSALS_KEPT:
                at_s = time.monotonic() - (self.began_s or 0.0)
                self.refusals.append(FaultRecord(at_s, "refused", task.worker, task.sequence, note))

    def assign(self, task: Compute) -> None:
        self.mailboxes[task.worker].put(task)

    def release(self, worker: int, sequence: int) -> None:
        self.store.release(worker, sequence)

    def announce(self, epoch: int) -> None:
        self.epochs[epoch] = self.store.version, self.store.current, time.monotonic()
