"""The first spans of each process, in shared memory: enough to see how computing and exchanging interleave."""

from __future__ import annotations

from paceline.trace import Span
from paceline.training.drivers.local.shared_memory import SPANS_KEPT, SharedMemory

COMPUTE, FETCH, WAIT, UPDATE = range(4)
WHATS = ("compute", "fetch", "wait", "update")


class SpanLog:
    def __init__(self, memory: SharedMemory, who: int) -> None:
        self.rows = memory.spans[who]
        self.next = int((self.rows[:, 2] > 0).sum())  # a former incarnation may have begun it

    def add(self, what: int, start_ns: int, end_ns: int) -> None:
        if self.next < SPANS_KEPT:
            self.rows[self.next] = what, start_ns, end_ns
            self.next += 1


def spans_of(memory: SharedMemory, origin_s: float) -> list[Span]:
    """The spans of a process, with times relative to `origin_s` of the monotonic clock."""
    workers = memory.sizes.workers
    found = []
    for who, rows in enumerate(memory.spans):
        name = f"worker {who}" if who < workers else "server"
        for what, start_ns, end_ns in rows[rows[:, 2] > 0].tolist():
            found.append(Span(name, WHATS[what], start_ns / 1e9 - origin_s, end_ns / 1e9 - origin_s))
    return found
