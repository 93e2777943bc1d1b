"""A training loop in a process of its own: on a CPU, memory that one loop leaves behind makes the next one slower."""

from __future__ import annotations

import multiprocessing
import traceback
from multiprocessing.connection import Connection
from time import perf_counter

import torch

from benchmarks.hand_loops import HandLoop, PacelineLoop
from paceline.workload import Workload

WARM_UP = 1


class LoopFailed(Exception):
    """The loop cannot be had for this network; the message says why, in one line."""


class LoopProcess:
    """`auto` and `paceline KIND` are Paceline's steps, all others are written by hand."""

    def __init__(self, workload: Workload, kind: str, device: str) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, workload, kind, device), daemon=True)
        self.process.start()
        theirs.close()
        self.first_s, self.step, self.reason = self._answer()
        """Seconds to the end of the first step; the kind of Paceline's step, and why it was chosen."""

    def seconds(self, count: int) -> float:
        """Seconds per step, after a step that is not counted."""
        self.connection.send(count)
        return float(self._answer()[0])

    def close(self) -> None:
        self.connection.close()
        self.process.join()

    def _answer(self) -> tuple[float, str, str]:
        try:
            answer = self.connection.recv()
        except EOFError:
            self.process.join()
            raise LoopFailed(f"its process ended with exit code {self.process.exitcode}") from None
        if isinstance(answer, str):
            raise LoopFailed(answer)
        found: tuple[float, str, str] = answer
        return found


def _serve(connection: Connection, workload: Workload, kind: str, device: str) -> None:
    try:
        place = torch.device(device)
        began = perf_counter()
        ours = kind == "auto" or kind.startswith("paceline ")
        loop = (
            PacelineLoop(workload, kind.removeprefix("paceline "), place) if ours else HandLoop(workload, kind, place)
        )
        loop.run(1)
        _wait(place)
        chosen = (loop.choice.kind, loop.choice.reason) if isinstance(loop, PacelineLoop) else (kind, "")
        connection.send((perf_counter() - began, *chosen))
        while True:
            count = connection.recv()
            loop.run(WARM_UP)
            _wait(place)
            start = perf_counter()
            loop.run(count)
            _wait(place)
            connection.send(((perf_counter() - start) / count, "", ""))
    except EOFError:
        pass
    except Exception as error:  # a loop that this network cannot have is no competitor
        text = str(error) or traceback.format_exc()
        connection.send(next((line for line in text.splitlines() if line.strip()), type(error).__name__))


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
