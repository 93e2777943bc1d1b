"""The server's connection to those that follow it: its replica, or its shards.

Events are sent under the server's lock, and confirmed without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from time import monotonic
from typing import Any

from paceline.training.drivers.ray.following import Event

CONFIRM_WITHIN_S = 5.0
"""A follower that takes longer is given up; another one is started."""


class FollowerLink:
    def __init__(self, followers: Sequence[Any], generation: str, *, awaited: bool, began: Sequence[Any] = ()) -> None:
        """With `awaited` the server answers a worker when followers have what the worker sent.

        `began` are references to their answers that they have begun.
        """
        self.followers, self.generation, self.awaited = followers, generation, awaited
        self.is_broken = False
        """A follower is gone or did not answer."""
        self._events: list[Event] = []
        self._count = 0
        self._sent = list(began)
        self._unanswered: dict[Any, float] = {}
        """When each was sent, if nobody waits for it."""

    def add(self, name: str, arguments: tuple[Any, ...]) -> None:
        self._events.append((name, arguments))

    def send(self) -> Any:
        """Sends the collected events; returns the token for `confirm`."""
        if self._events:
            self._sent = [one.follow.remote(self.generation, self._count, self._events) for one in self.followers]
            self._count += len(self._events)
            self._events = []
            if not self.awaited:
                self._unanswered.update(dict.fromkeys(self._sent, monotonic()))
        return self._sent

    def confirm(self, sent: Any) -> bool:
        """Whether the followers have what was sent so far, if it is awaited."""
        if not self.awaited:
            return True
        ray: Any = import_module("ray")
        try:
            ray.get(sent, timeout=CONFIRM_WITHIN_S)
        except ray.exceptions.RayError:
            self.is_broken = True
            return False
        return True

    def check(self, within_s: float) -> None:
        """Finds out, without waiting, whether a follower is gone or has not answered for `within_s`."""
        if not self._unanswered:
            return
        ray: Any = import_module("ray")
        answered, _ = ray.wait([*self._unanswered], num_returns=len(self._unanswered), timeout=0)
        for reference in answered:
            del self._unanswered[reference]
        try:
            ray.get(answered)
        except ray.exceptions.RayError:
            self.is_broken = True
        if self._unanswered and monotonic() - min(self._unanswered.values()) > within_s:
            self.is_broken = True
