"""What the launcher and the processes of a divided network say to each other, over one socket for each of them."""

from __future__ import annotations

import pickle
import select
import socket
import struct
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from paceline.step.tally import Score
from paceline.training.division import ProcessRecord
from paceline.training.drivers.model_parallel.rehearsal import Rehearsal

_LENGTH = struct.Struct("Q")
_PIECE = 1 << 20


@dataclass(frozen=True, eq=False)
class Begin:
    """An epoch, from one of its steps."""

    epoch: int
    first: int


@dataclass(frozen=True)
class Advance:
    steps: int


@dataclass(frozen=True)
class Collect:
    """Asks for parameters and buffers, or for the optimizer's state, or both."""

    tensors: bool
    optimizer: bool


@dataclass(frozen=True, eq=False)
class WholeState:
    """Of the whole network, by name: what to continue from, or what a process has of it."""

    tensors: dict[str, Tensor]
    optimizer: dict[str, dict[str, Any]]
    """State of the optimizer by parameter; empty: none yet."""


@dataclass(frozen=True, eq=False)
class Ready:
    rehearsal: Rehearsal | None = None
    """Of a stage of a pipeline, before the first step."""


@dataclass(frozen=True, eq=False)
class Advanced:
    score: Score
    """Of the last stage; of the others it is empty."""
    record: ProcessRecord
    spans: list[tuple[str, float, float]] = field(default_factory=list)
    """Part, begin and end of what it did, on the clock that all processes share; the first ones alone."""


@dataclass(frozen=True)
class Failed:
    message: str
    exit_code: int


class Channel:
    """Messages over a socket; both ends are processes of one run."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection

    def send(self, message: Any) -> None:
        content = pickle.dumps(message, protocol=5)
        self.connection.sendall(_LENGTH.pack(len(content)))
        self.connection.sendall(content)

    def ready(self, timeout_s: float) -> bool:
        """Whether a message, or the end of the connection, is there in time."""
        return bool(select.select([self.connection], [], [], timeout_s)[0])

    def receive(self) -> Any:
        """The next message; `EOFError` if the other end is gone."""
        return pickle.loads(self._read(_LENGTH.unpack(self._read(_LENGTH.size))[0]))

    def _read(self, count: int) -> bytearray:
        found = bytearray(count)
        view, done = memoryview(found), 0
        while done < count:
            try:
                got = self.connection.recv_into(view[done:], min(_PIECE, count - done))
            except ConnectionError:
                got = 0
            if not got:
                raise EOFError
            done += got
        return found

    def close(self) -> None:
        self.connection.close()
