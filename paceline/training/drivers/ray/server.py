"""The server actor: workers call it, and it answers with tasks and parameters.

Calls run in threads of the actor, one at a time under the lock; a call without an answer yet waits for one without
it, for at most `ANSWER_WITHIN_S`. If the actor dies, Ray starts it again, and the launcher lets it begin from the last
checkpoint; it then is another generation, which workers join anew.
"""

from __future__ import annotations

import itertools
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from paceline.errors import Diverged, InputError, PacelineError, reason
from paceline.strategy.event_record import EventRecord
from paceline.trace import Span
from paceline.training.drivers.ray.actor import Actor
from paceline.training.drivers.ray.follower_link import FollowerLink
from paceline.training.drivers.ray.incoming import Incoming
from paceline.training.drivers.ray.job import Job
from paceline.training.drivers.ray.mailbox import ANSWER_WITHIN_S, Mailbox
from paceline.training.drivers.ray.messages import ASK_AGAIN, Call, ChannelAddress, Reply, ServerState, Status
from paceline.training.drivers.ray.node_channel import ChannelListener
from paceline.training.drivers.ray.node_memory import FETCHED, NodeMemory
from paceline.training.drivers.ray.pieces import Array, Pieces
from paceline.training.drivers.ray.serving import ServedTraining

REJOIN_WITHIN_S = 10.0
"""A new server waits this long for all workers; one whose node is gone may have no room."""


class Server(Actor):
    def __init__(self, job: Job) -> None:
        super().__init__(job)
        torch.set_num_threads(1)
        self.identity = self.generation = uuid.uuid4().hex
        self.joins = itertools.count(1)
        self.lock = threading.RLock()
        self.news = threading.Condition(self.lock)
        """For the launcher: an epoch, the end, a failure."""
        self.mailboxes = [Mailbox(self.lock) for _ in range(job.workers)]
        self.parameters = Pieces(job.layout.size, job.layout.torch_dtype)
        self.incoming = Incoming(job.answer_within_s)
        self.serving: ServedTraining | None = None
        self.followers: FollowerLink | None = None  # its replica, or its shards
        self.listener: ChannelListener | None = None
        self.failure: tuple[str, str] | None = None
        self.ended_s: float | None = None
        self.epochs_told = 0

    @property
    def over(self) -> bool:
        return self.failure is not None or self.ended_s is not None

    # What workers call

    def exchange(self, call: Call, *pieces: Any) -> tuple[Any, ...]:
        """Takes a worker's push; returns its next task, with parameters if the first step fetches."""
        reply, parameters = self._exchange(call, self.incoming.receive(pieces))
        return reply, *self.parameters.filled_up(parameters)

    def fetch(self, call: Call, sequence: int, position: int) -> tuple[Any, ...]:
        """The version and parameters for a step of a task; -1: it was reassigned; `ASK_AGAIN`: it is too early."""
        version, parameters = self._fetch(call, sequence, position)
        return version, *self.parameters.filled_up(parameters)

    def answer_on_node(self, memory: NodeMemory, request: tuple[Any, ...]) -> tuple[Any, tuple[int, int] | None]:
        """Like `exchange` and `fetch`, for a worker with shared memory: returns where the parameters are."""
        call, *what = request
        if len(what) == 2:
            version, parameters = self._fetch(call, *what)
            return version, None if parameters is None else memory.put(parameters, FETCHED)
        pieces = () if call.push is None else what[0] if what else (memory.payload.numpy(),)
        reply, parameters = self._exchange(call, tuple(pieces))
        with self.lock:
            if self.serving is not None and (reply.task is not None or self.job.strategy.overlap):
                self.serving.keep_payload(call.worker, memory.payload)
        return reply, None if parameters is None else memory.put(parameters)

    def _exchange(self, call: Call, pieces: tuple[Array, ...]) -> tuple[Reply, Tensor | None]:
        with self._replicated():
            return self._guarded(lambda: self._answer(call, pieces)) or (Reply("", over=True), None)

    def _fetch(self, call: Call, sequence: int, position: int) -> tuple[int, Tensor | None]:
        with self._replicated():
            mailbox = self.mailboxes[call.worker]
            mailbox.bell.wait_for(lambda: self._may_fetch(call, sequence), ANSWER_WITHIN_S)
            if sequence not in mailbox.computing or not mailbox.knows(call.generation):
                return -1, None
            mailbox.awaits_others = not self._may_fetch(call, sequence)
            if mailbox.awaits_others:
                return ASK_AGAIN, None
            found: tuple[int, Tensor] = self._do("fetch", call.worker, sequence, position)
            return found

    def _may_fetch(self, call: Call, sequence: int) -> bool:
        """Whether there is an answer: what is to be fetched, or that the worker does not have the task any more."""
        mailbox = self.mailboxes[call.worker]
        task = mailbox.computing.get(sequence) if mailbox.knows(call.generation) else None
        return task is None or self.serving is None or self.serving.coordinator.may_fetch(task)

    def _channel_for(self, node: str) -> ChannelAddress | None:
        if not node or node != self.node():
            return None
        self.listener = self.listener or ChannelListener(self.job, self.answer_on_node)
        return self.listener.address

    def _answer(self, call: Call, pieces: tuple[Array, ...]) -> tuple[Reply, Tensor | None]:
        mailbox, latest_s = self.mailboxes[call.worker], time.monotonic() + ANSWER_WITHIN_S
        mailbox.bell.wait_for(lambda: self.serving is not None, ANSWER_WITHIN_S)
        serving, channel = self.serving, None
        if serving is None or call.incarnation <= mailbox.dead:
            return Reply("", over=serving is not None), None
        if not call.generation:
            channel = self._channel_for(call.node)
            self._do("join", call, channel is not None)
            mailbox.generation = f"{self.generation}-{next(self.joins)}"
        elif not self.mailboxes[call.worker].knows(call.generation):
            return Reply("", over=self.over), None
        else:
            mailbox.awaits_others = False
            self._do("report", call.worker, call.report)
            if call.push is not None and call.push.sequence in mailbox.computing:
                self._do("push", call.worker, call.push, pieces)
        generation = mailbox.generation
        self._continue(serving)
        began_s = time.monotonic()
        if not mailbox.is_busy:  # else it has something to compute before it needs another task
            mailbox.bell.wait_for(
                lambda: mailbox.todo or mailbox.whole_wanted or self.over or mailbox.generation != generation,
                latest_s - began_s,
            )
        waited_s = time.monotonic() - began_s
        if mailbox.generation != generation:
            return Reply(""), None
        whole_wanted, mailbox.whole_wanted = mailbox.whole_wanted, False
        if whole_wanted or not mailbox.todo or self.over:
            return Reply(generation, None, 0, waited_s, self.over, channel, whole_wanted=whole_wanted), None
        task, formation, version, parameters = self._do("take", call.worker)
        return Reply(generation, task, version, waited_s, channel=channel, formation=formation), parameters

    def exchange_note(self, call: Call, formation: int, key: str, note: bytes | None) -> tuple[bool, bytes]:
        """A member of a formation leaves a note for the others, or waits for one; whether the formation stands."""
        with self.lock:
            if self.serving is None or not self.mailboxes[call.worker].knows(call.generation):
                return False, b""
            return self.serving.formations.exchange_note(call.worker, formation, key, note)

    # What the launcher calls

    def begin(
        self, state: ServerState, join_within_s: float, shards: Sequence[Any] = (), generation: str = "",
        awaited: bool = False,
    ) -> str:  # fmt: skip
        """Starts, or continues from `state`, unless it has started already; returns which server it is.
        `shards` have begun to follow it as this generation; with `awaited` nothing is answered that they have not.
        """
        with self.lock:
            if self.serving is None:
                self.serving = ServedTraining(self.job, state, self.mailboxes, join_within_s)
                if shards:
                    self.generation = generation
                    self.followers = FollowerLink(shards, generation, awaited=awaited)
                self._tell_all()
            return self.identity

    def died(self, worker: int, incarnation: int) -> None:
        """Handles the death of a worker; it may rejoin as a later incarnation."""
        with self._replicated():
            mailbox, serving = self.mailboxes[worker], self.serving
            mailbox.dead = max(mailbox.dead, incarnation)
            if serving is not None and mailbox.incarnation <= incarnation:
                self._guarded(lambda: self._do("died", worker))
                self._guarded(lambda: self._continue(serving))

    def replicate(self, replica: Any) -> None:
        """Makes `replica` follow from now on, instead of an earlier one."""
        with self.lock:
            if self.serving is None:
                return
            state = self.serving.snapshot()
            if any(mailbox.incarnation for mailbox in self.mailboxes):
                self._begin_again(self.serving, state)
            began = replica.begin.remote(self.generation, state)
            self.followers = FollowerLink([replica], self.generation, awaited=True, began=[began])

    def _begin_again(self, before: ServedTraining, state: ServerState) -> None:
        """As another generation: what workers have in hand is in no snapshot, so they join again, and do it again."""
        for mailbox in self.mailboxes:
            mailbox.clear()
        self.generation = uuid.uuid4().hex
        self.serving = ServedTraining(self.job, state, self.mailboxes, REJOIN_WITHIN_S)
        self.serving.count_on_from(before)

    def status(self, within_s: float, epochs_seen: int, dead: tuple[tuple[int, int], ...] = ()) -> Status:
        """The progress of the run: at once if there is news, otherwise after `within_s`. `dead` workers are removed."""
        for worker, incarnation in dead:
            self.died(worker, incarnation)
        with self.lock:
            self.news.wait_for(
                lambda: self.over or (self.serving and self.serving.coordinator.epochs_done > epochs_seen), within_s
            )
            serving, now_s, followers = self.serving, time.monotonic(), self.followers
            if serving is None:
                return Status(self.generation, begun=False, failure=self.failure)
            if followers is not None:
                followers.check(self.job.stopped_timeout_s)
            return replace(
                serving.status(now_s),
                generation=self.generation,
                finished=self.ended_s is not None,
                failure=self.failure,
                replicated=followers is not None,
                lost_shard=followers is not None and followers.is_broken,
                ended_ago_s=None if self.ended_s is None else now_s - self.ended_s,
            )

    def epoch_parameters(self, epoch: int) -> tuple[int, Array] | None:
        """The version and the parameters at the end of an epoch; those of earlier epochs are no longer kept."""
        with self._replicated():
            found = None if self.serving is None else self._do("take_epoch", epoch)
            return None if found is None else (found[0], found[1].numpy())

    def current_parameters(self) -> tuple[int, Array] | None:
        with self.lock:
            store = None if self.serving is None else self.serving.store
            return None if store is None else (store.version, store.current.numpy())

    def snapshot(self, number: int = 0) -> ServerState | None:
        """One consistent version of everything; shards keep theirs under `number`. None before the start."""
        with self._replicated():
            if self.serving is None:
                return None
            if self.job.shards > 1:
                self._do("keep", number)
            return self.serving.snapshot()

    def events(self) -> EventRecord | None:
        with self.lock:
            return self.serving.events() if self.serving is not None else None

    def trace(self) -> list[Span]:
        with self.lock:
            return self.serving.trace() if self.serving is not None else []

    # What happens, here and at those that follow

    def _do(self, name: str, *arguments: Any) -> Any:
        """Calls a method of the training that changes it; the replica or the shards will do the same."""
        if self.followers is not None:
            self.followers.add(name, arguments)
        return getattr(self.serving, name)(*arguments)

    @contextmanager
    def _replicated(self) -> Iterator[None]:
        """With the lock; then, without it, until a replica has what happened. A lost replica is given up."""
        with self.lock:
            yield
            link = self.followers
            sent = None if link is None else link.send()
        if link is not None and not link.confirm(sent) and self.job.shards == 1:
            with self.lock:
                self.followers = None if self.followers is link else self.followers

    def _continue(self, serving: ServedTraining) -> None:
        if serving.should_begin:
            self._do("begin_together")
        self._end_if_done(serving)

    def _end_if_done(self, serving: ServedTraining) -> None:
        if serving.coordinator.finished and self.ended_s is None:
            self.ended_s = time.monotonic()
            self._tell_all()
        elif serving.coordinator.epochs_done > self.epochs_told:
            self.epochs_told = serving.coordinator.epochs_done
            self.news.notify_all()

    def _guarded(self, work: Callable[[], Any]) -> Any:
        """Turns an exception into a one-line error that ends the run, so that no call is left without a reply."""
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
