"""Large payloads reach the server one after another.

Transfers that share a link all end at the same time, and then all workers receive their parameters at the same time: of
the two directions of the server's link, one is always idle. In turns, one payload arrives while the parameters for the
worker before it are sent.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from paceline.training.drivers.ray.pieces import Array

TURNS = 2
"""Payloads on their way: the second one fills the link while the first begins or ends."""
TURN_WITHIN_S = 10.0
"""A payload that has waited so long is transferred beside the others: one of them may come over a slower link."""


class Incoming:
    def __init__(self, within_s: float) -> None:
        self.within_s = within_s
        self._turn = threading.Semaphore(TURNS)

    def receive(self, pieces: Sequence[Any]) -> tuple[Array, ...]:
        """The pieces of a payload. A large one comes as a reference in a list, which Ray does not transfer itself."""
        if not any(isinstance(piece, list) for piece in pieces):
            return tuple(pieces)
        in_turn = self._turn.acquire(timeout=TURN_WITHIN_S)
        try:
            references = [reference for piece in pieces for reference in piece]
            ray = import_module("ray")
            # While one thread is in `get`, no other can store what it replies; `wait` lets them.
            ray.wait(references, num_returns=len(references), timeout=self.within_s, fetch_local=True)
            return tuple(ray.get(references, timeout=self.within_s))
        finally:
            if in_turn:
                self._turn.release()
