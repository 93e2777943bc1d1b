"""A shard of the server: it has a slice of the parameters and follows the server, which decides what happens.

Workers deliver their slice of a payload before the server hears of it, and collect theirs of the parameters when the
server has answered. All shards make the same updates in the same order, so a version is one at all of them.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

import numpy as np
import torch

from paceline.training.drivers.ray.actor import Actor
from paceline.training.drivers.ray.following import EVENTS_KEPT, Event, Following
from paceline.training.drivers.ray.incoming import Incoming
from paceline.training.drivers.ray.job import Job
from paceline.training.drivers.ray.mailbox import ANSWER_WITHIN_S
from paceline.training.drivers.ray.messages import ServerState
from paceline.training.drivers.ray.pieces import Array
from paceline.training.drivers.ray.serving import ServedTraining

KEPT_WITHIN_S = 10.0
"""How long the launcher may wait for a version that the server has promised."""


class ServerShard(Actor):
    def __init__(self, job: Job) -> None:
        super().__init__(job)
        torch.set_num_threads(1)
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.following = Following(job, self.lock)
        self.following.latest = deque(maxlen=EVENTS_KEPT)
        self.received: dict[tuple[int, int], Array] = {}
        self.following.received = self.received
        self.incoming = Incoming(job.answer_within_s)
        self.is_sealed = False

    @property
    def serving(self) -> ServedTraining | None:
        return self.following.serving

    # What the server calls

    def follow(self, generation: str, first: int, events: list[Event]) -> None:
        """Applies events of the server; returns when they and those before them are applied."""
        with self.changed:
            if not self.following.generation:
                raise LookupError("this shard has no state: it was started again")
            if self.is_sealed:
                return
            self._follow(generation, first, events)
            self.changed.wait_for(
                lambda: self.following.count > first or self.following.generation != generation, KEPT_WITHIN_S
            )

    def _follow(self, generation: str, first: int, events: list[Event]) -> None:
        self.following.follow(generation, first, events)
        self._drop_unwanted()
        self.changed.notify_all()

    def _drop_unwanted(self) -> None:
        """Slices of payloads whose worker died: its tasks were given to others."""
        for key in [key for key in self.received if self._was_taken_away(*key)]:
            del self.received[key]

    def _was_taken_away(self, worker: int, sequence: int) -> bool:
        """Whether a worker was given such a task, and does not have it any more."""
        assert self.serving is not None
        member, mailbox = self.serving.coordinator.members.get(worker), self.serving.mailboxes[worker]
        given = member is not None and sequence <= member.sequence
        return given and sequence not in (*mailbox.computing, *(task.sequence for task in mailbox.todo))

    # What workers call

    def deliver(self, generation: str, worker: int, sequence: int, piece: Any) -> Array:
        """Takes its slice of a payload; returns what the server gets of it instead, which is nothing."""
        (found,) = self.incoming.receive((piece,))
        with self.lock:
            if generation == self.following.generation:
                self.received[worker, sequence] = found
        return np.empty(0, found.dtype)

    def collect(self, generation: str, worker: int, sequence: int, version: int) -> tuple[bool, Array | None]:
        """Whether the worker still has the task, and its slice of the parameters, once this shard has the version."""
        with self.changed:
            self.changed.wait_for(
                lambda: (
                    self._is_lost(generation, worker, sequence) or self._fetched(worker, sequence, version) is not None
                ),
                ANSWER_WITHIN_S,
            )
            if self._is_lost(generation, worker, sequence):
                return False, None
            return True, self._fetched(worker, sequence, version)

    def _is_lost(self, generation: str, worker: int, sequence: int) -> bool:
        return generation != self.following.generation or self._was_taken_away(worker, sequence)

    def _fetched(self, worker: int, sequence: int, version: int) -> Array | None:
        assert self.serving is not None
        found = self.serving.mailboxes[worker].held.get(sequence)
        return found.parameters.numpy() if found is not None and found.version == version else None

    # What the launcher calls

    def begin(self, generation: str, state: ServerState) -> None:
        with self.changed:
            self.received.clear()
            self.following.begin(generation, state)
            self.is_sealed = False
            self.changed.notify_all()

    def kept(self, generation: str, number: int) -> ServerState | None:
        """This shard's slice of the version that the server was asked to keep under this number."""
        with self.changed:
            self.changed.wait_for(lambda: self._kept(generation, number) is not None, KEPT_WITHIN_S)
            return self._kept(generation, number)

    def kept_parameters(self, generation: str, number: int) -> Array | None:
        state = self.kept(generation, number)
        return None if state is None else state.parameters.numpy()

    def _kept(self, generation: str, number: int) -> ServerState | None:
        kept = self.serving.kept if self.serving is not None and generation == self.following.generation else None
        return kept[1] if kept is not None and kept[0] == number else None

    def epoch_parameters(self, generation: str, epoch: int) -> Array | None:
        """This shard's slice of the parameters at the end of an epoch."""
        with self.changed:
            self.changed.wait_for(lambda: self._epoch(generation, epoch) is not None, KEPT_WITHIN_S)
            return self._epoch(generation, epoch)

    def _epoch(self, generation: str, epoch: int) -> Array | None:
        if self.serving is None or generation != self.following.generation or epoch not in self.serving.epochs:
            return None
        return self.serving.epochs[epoch][1].numpy()

    # After a death, with replicas

    def seal(self, generation: str) -> tuple[int, list[Event]] | None:
        """Hears no more of the server, which is gone; how many events it has heard of, and the last of them."""
        with self.changed:
            if self.following.generation != generation:
                return None
            self.is_sealed = True
            return self.following.count, list(self.following.latest)

    def catch_up(self, generation: str, first: int, events: list[Event]) -> ServerState | None:
        """Applies the events that others have heard of; its slice of everything then."""
        with self.changed:
            self._follow(generation, first, events)
            return None if self.serving is None else self.serving.snapshot()
