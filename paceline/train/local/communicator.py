"""torch.distributed among the members of a group: how they find each other, add up a vector, and part when one is gone.

Backends are made directly, not through `init_process_group`: there is no global state, so that a communicator that
still waits for a dead member can be left behind while another is formed under a new key.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist

from paceline.errors import PacelineError
from paceline.step.reason import reason

HOST = "127.0.0.1"
TOGETHER_S = 60.0
"""What forming a communicator, or adding up, may take once all members are there."""


class Rendezvous:
    """Of the launcher: a store at which members find each other, open to this machine alone.

    The kernel chooses the port, so that none can be taken, and hands it over open, so that none can be lost.
    """

    def __init__(self) -> None:
        self._store: dist.TCPStore | None
        try:
            listening = socket.create_server((HOST, 0))
            self.port: int = listening.getsockname()[1]
            self._store = dist.TCPStore(
                HOST, self.port, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=TOGETHER_S),
                master_listen_fd=listening.detach(),
            )  # fmt: skip
        except (OSError, RuntimeError) as error:
            raise PacelineError(f"a group cannot meet at {HOST}: {reason(error)}; use --collective shared") from error

    def close(self) -> None:
        self._store = None


class Communicator:
    """Formed when all members are there, and of no use any more when one of them is gone."""

    def __init__(self, backend: str, port: int, key: str, rank: int, size: int, vector: Tensor) -> None:
        """`vector` is what is added up, in place; `key` has to be another one for every communicator."""
        self.vector = vector
        within = timedelta(seconds=TOGETHER_S)
        store = dist.PrefixStore(key, dist.TCPStore(HOST, port, is_master=False, timeout=within))
        self._backend: Any = _gloo(store, rank, size) if backend == "gloo" else _nccl(store, rank, size)
        self._work: dist.Work | None = None
        self.begin()  # nccl connects only now
        self.finish()
        if vector.device.type == "cuda":
            torch.cuda.synchronize(vector.device)

    def begin(self) -> None:
        """The sum of all members' vectors will be in each of them."""
        options = dist.AllreduceOptions()  # a sum, unless told otherwise
        options.asyncOp = True  # on a stream of its own: what is on ours must not wait for a dead member
        self._work = self._backend.allreduce([self.vector], options)

    def is_done(self) -> bool:
        return self._work is None or self._work.is_completed()

    def finish(self) -> None:
        """Raises a RuntimeError if the sum failed."""
        assert self._work is not None
        self._work.wait()

    def abandon(self) -> None:
        """Whatever it still waits for. Nobody waits for that: it takes until gloo's time is up."""
        threading.Thread(target=self._end, daemon=True).start()

    def _end(self) -> None:
        with contextlib.suppress(RuntimeError):  # gloo cannot
            self._backend.abort()
        while not self.is_done():  # a backend that is deleted earlier would wait for it, and let no other thread run
            time.sleep(0.1)
        del self._backend


class Forming:
    """A communicator that is being made, beside whoever waits for it."""

    def __init__(self, make: Callable[[], Communicator]) -> None:
        self._make, self._left = make, False
        self._made: Communicator | None = None
        self._error: Exception | None = None
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            made = self._make()
        except Exception as error:
            self._error = error
            return
        with self._lock:
            self._made = made
            if self._left:
                made.abandon()

    def is_done(self) -> bool:
        return not self._thread.is_alive()

    def result(self) -> Communicator:
        if self._error is not None:
            raise self._error
        assert self._made is not None
        return self._made

    def abandon(self) -> None:
        with self._lock:
            self._left = True
            if self._made is not None:
                self._made.abandon()


def _gloo(store: dist.Store, rank: int, size: int) -> dist.ProcessGroupGloo:
    backend: Any = dist.ProcessGroupGloo  # what PyTorch says of its types is not all there is
    options = backend._Options()
    options._devices = [backend.create_device(hostname=HOST)]  # whatever the machine calls itself
    options._timeout = timedelta(seconds=TOGETHER_S)
    options._threads = 1
    made: dist.ProcessGroupGloo = backend(store, rank, size, options)
    return made


def _nccl(store: dist.Store, rank: int, size: int) -> dist.ProcessGroupNCCL:
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = timedelta(seconds=10 * TOGETHER_S)  # then it would end the process; we leave it long before
    return dist.ProcessGroupNCCL(store, rank, size, options)
