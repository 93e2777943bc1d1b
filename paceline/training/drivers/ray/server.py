"""The server actor: workers call it, and it answers with tasks and parameters.

Calls run in threads of the actor, one at a time under the lock; a call without an answer yet waits for one without
it, for at most `ANSWER_WITHIN_S`. If the actor dies, Ray starts it again, and the launcher lets it begin from the last
checkpoint; it then is another generation, which workers join anew.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from paceline.errors import Diverged, InputError, PacelineError, reason
from paceline.strategy.event_record import EventRecord
from paceline.training.drivers.ray.actor import Actor
from paceline.training.drivers.ray.job import Job
from paceline.training.drivers.ray.mailbox import Mailbox
from paceline.training.drivers.ray.messages import Call, Reply, ServerState, Status
from paceline.training.drivers.ray.pieces import Array, Pieces
from paceline.training.drivers.ray.serving import ServedTraining

ANSWER_WITHIN_S = 0.5


class Server(Actor):
    def __init__(self, job: Job) -> None:
        super().__init__(job)
        torch.set_num_threads(1)
        self.generation = uuid.uuid4().hex
        self.lock = threading.RLock()
        self.news = threading.Condition(self.lock)
        """For the launcher: an epoch, the end, a failure."""
        self.mailboxes = [Mailbox(self.lock) for _ in range(job.workers)]
        self.parameters = Pieces(job.layout.size, job.layout.torch_dtype)
        self.payloads = Pieces(job.payload_size, job.layout.torch_dtype)
        self.serving: ServedTraining | None = None
        self.failure: tuple[str, str] | None = None
        self.ended_s: float | None = None
        self.epochs_told = 0

    @property
    def over(self) -> bool:
        return self.failure is not None or self.ended_s is not None

    # What workers call

    def exchange(self, call: Call, *pieces: Array) -> tuple[Any, ...]:
        """Takes what a worker pushes; its next task, with parameters if its first step fetches."""
        with self.lock:
            reply, parameters = self._guarded(lambda: self._answer(call, pieces)) or (Reply("", over=True), None)
            return reply, *self._cut(parameters)

    def _cut(self, parameters: Tensor | None) -> list[Any]:
        return self.parameters.cut(parameters) if parameters is not None else [None] * len(self.parameters)

    def _answer(self, call: Call, pieces: tuple[Array, ...]) -> tuple[Reply, Tensor | None]:
        mailbox, latest_s = self.mailboxes[call.worker], time.monotonic() + ANSWER_WITHIN_S
        mailbox.bell.wait_for(lambda: self.serving is not None, ANSWER_WITHIN_S)
        serving = self.serving
        if serving is None or call.incarnation <= mailbox.dead:
            return Reply("", over=serving is not None), None
        if not call.generation:
            serving.join(call)
        elif not self._knows(call):
            return Reply("", over=self.over), None
        else:
            serving.scoreboard.add(call.worker, call.report)
            if call.push is not None and call.push.sequence in mailbox.computing:
                serving.push(call.worker, call.push, self.payloads.joined(pieces))
        serving.begin_together()
        self._end_if_done(serving)
        began_s = time.monotonic()
        if not mailbox.computing:  # else it has something to compute before it needs another task
            mailbox.bell.wait_for(
                lambda: mailbox.todo or self.over or mailbox.incarnation != call.incarnation, latest_s - began_s
            )
        waited_s = time.monotonic() - began_s
        if mailbox.incarnation != call.incarnation:
            return Reply(""), None
        if not mailbox.todo or self.over:
            return Reply(self.generation, waited_s=waited_s, over=self.over), None
        task = mailbox.take()
        version, parameters = serving.fetch(task, 0) if 0 in task.fetches else (0, None)
        return Reply(self.generation, task, version, waited_s), parameters

    def fetch(self, call: Call, sequence: int, position: int) -> tuple[Any, ...]:
        """The parameters for a later step of a task, and their version; -1: the task is no longer this worker's."""
        with self.lock:
            task = self.mailboxes[call.worker].computing.get(sequence)
            if task is None or self.serving is None or not self._knows(call):
                return -1, *self._cut(None)
            version, parameters = self.serving.fetch(task, position)
            return version, *self._cut(parameters)

    def _knows(self, call: Call) -> bool:
        return call.generation == self.generation and call.incarnation == self.mailboxes[call.worker].incarnation

    # What the launcher calls

    def begin(self, state: ServerState, join_within_s: float) -> str:
        """Begins, or continues from `state`, unless it has begun already; the server's generation."""
        with self.lock:
            if self.serving is None:
                self.serving = ServedTraining(self.job, state, self.mailboxes, join_within_s)
                self._tell_all()
            return self.generation

    def died(self, worker: int, incarnation: int) -> None:
        """A worker is gone; it may join again as a later incarnation."""
        with self.lock:
            mailbox, serving = self.mailboxes[worker], self.serving
            mailbox.dead = max(mailbox.dead, incarnation)
            if serving is not None and mailbox.incarnation <= incarnation:
                self._guarded(lambda: serving.died(worker))
                self._end_if_done(serving)

    def status(self, within_s: float, epochs_seen: int) -> Status:
        """How the run is doing: at once if there is news, else after `within_s`."""
        with self.lock:
            self.news.wait_for(
                lambda: self.over or (self.serving and self.serving.coordinator.epochs_done > epochs_seen), within_s
            )
            serving, now_s = self.serving, time.monotonic()
            if serving is None:
                return Status(self.generation, begun=False, failure=self.failure)
            coordinator, board = serving.coordinator, serving.scoreboard
            epoch, batches = coordinator.epochs_done, coordinator.batches
            return Status(
                self.generation,
                begun=True,
                finished=self.ended_s is not None,
                failure=self.failure,
                version=coordinator.version,
                epochs_done=epoch,
                closed=batches.closed(epoch) if epoch in batches.done else 0,
                alive=coordinator.alive,
                computing=tuple(number for number, mailbox in enumerate(self.mailboxes) if mailbox.computing),
                updating_s=serving.updating_s,
                began_ago_s=None if serving.began_s is None else now_s - serving.began_s,
                ended_ago_s=None if self.ended_s is None else now_s - self.ended_s,
                epoch_ended_ago_s={number: now_s - kept[2] for number, kept in serving.epochs.items()},
                ledger=coordinator.ledger.summary(),
                refusals=tuple(serving.refusals),
                scores={number: board.epoch(number) for number in {*serving.epochs, epoch}},
                by_worker=tuple(board.report(worker) for worker in range(self.job.workers)),
                totals=board.totals(),
                accuracies=board.accuracies(serving.first_epoch, epoch),
            )

    def epoch_parameters(self, epoch: int) -> tuple[int, Array] | None:
        """The version and the parameters at the end of an epoch, which are kept until then."""
        with self.lock:
            found = self.serving.epochs.pop(epoch, None) if self.serving is not None else None
            return None if found is None else (found[0], found[1].numpy())

    def current_parameters(self) -> tuple[int, Array] | None:
        with self.lock:
            store = self.serving.store if self.serving is not None else None
            return None if store is None else (store.version, store.current.numpy())

    def snapshot(self) -> ServerState | None:
        """One version of everything; None: there is nothing yet."""
        with self.lock:
            return self.serving.snapshot() if self.serving is not None else None

    def events(self) -> EventRecord | None:
        with self.lock:
            serving, job = self.serving, self.job
            if serving is None or serving.store.updates is None:
                return None
            tasks, updates = tuple(serving.tasks), tuple(serving.store.updates)
            return EventRecord(job.workload, job.strategy, job.workers, tasks, updates)

    # How it ends

    def _end_if_done(self, serving: ServedTraining) -> None:
        if serving.coordinator.finished and self.ended_s is None:
            self.ended_s = time.monotonic()
            self._tell_all()
        elif serving.coordinator.epochs_done > self.epochs_told:
            self.epochs_told = serving.coordinator.epochs_done
            self.news.notify_all()

    def _guarded(self, work: Callable[[], Any]) -> Any:
        """What goes wrong ends the run with one line; a call is never left without an answer."""
        try:
            return work()
        except Exception as error:
            kind = next((k for k in (Diverged, InputError, PacelineError) if isinstance(error, k)), PacelineError)
            text = str(error) if isinstance(error, PacelineError) else f"the server failed: {reason(error)}"
            self.failure = self.failure or (kind.__name__, text)
            self._tell_all()
            return None

    def _tell_all(self) -> None:
        self.news.notify_all()
        for mailbox in self.mailboxes:
            mailbox.bell.notify_all()
