"""The short way between the server and a worker of the same node: a Unix socket for messages, memory for vectors.

A call through Ray costs more than a step of a small network. Joining goes through Ray, wherever the worker is; one that
finds the server on its own node then connects to it, and calls it here.
"""

from __future__ import annotations

import contextlib
import os
import threading
import uuid
from collections import deque
from collections.abc import Callable
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener
from typing import Any

from paceline.training.drivers.ray.job import Job
from paceline.training.drivers.ray.messages import ChannelAddress, ServerLost
from paceline.training.drivers.ray.node_memory import NodeMemory, OfferedMemory, accept_memory


class ChannelListener:
    """The server's end: one thread per connected worker."""

    def __init__(self, job: Job, answer: Callable[[NodeMemory, Any], Any]) -> None:
        """`answer` is given a worker's memory and its request."""
        self.job, self.answer = job, answer
        self.address = ChannelAddress(f"\0paceline-{uuid.uuid4().hex}", os.urandom(32))
        self._listener = Listener(self.address.name, "AF_UNIX", backlog=128, authkey=self.address.key)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection: Any = self._listener.accept()
            except (AuthenticationError, EOFError, ConnectionError):
                continue
            except OSError:  # the system gives no more connections: other workers go through Ray
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: Connection[Any, Any]) -> None:
        with connection, contextlib.suppress(EOFError, OSError):
            memory = accept_memory(self.job, connection.recv())
            connection.send(memory is not None)
            while memory is not None:
                connection.send(self.answer(memory, connection.recv()))


class Channel:
    """The worker's end. An OSError means that the server cannot be reached this way."""

    def __init__(self, address: ChannelAddress, offered: OfferedMemory) -> None:
        try:
            self._connection = Client(address.name, "AF_UNIX", authkey=address.key)
            self._connection.send(offered.offer)
            if not self._connection.recv():
                raise OSError("the server does not find this worker's memory")
        except (AuthenticationError, EOFError) as error:
            raise OSError("the server does not answer") from error
        self.memory = offered.memory
        self._awaited: deque[int] = deque()
        self._answers: dict[int, Any] = {}
        self._sent = 0

    def send(self, request: Any) -> int:
        """Sends a request; returns the number under which its reply is received."""
        try:
            self._connection.send(request)
        except OSError as error:
            raise ServerLost from error
        self._sent += 1
        self._awaited.append(self._sent)
        return self._sent

    def receive(self, number: int, within_s: float) -> Any:
        """The reply to a request; TimeoutError if it has not arrived yet."""
        try:
            while number not in self._answers:
                if not self._connection.poll(within_s):
                    raise TimeoutError
                self._answers[self._awaited.popleft()] = self._connection.recv()
        except TimeoutError:
            raise
        except (EOFError, OSError) as error:
            raise ServerLost from error
        return self._answers.pop(number)

    def close(self) -> None:
        self._connection.close()
