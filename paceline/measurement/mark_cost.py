"""What a mark costs outside its two clock readings: the call and the return.

It is measured on work with and without marks, alternately. The work resembles a small layer: a matrix product and a
pass over a few hundred kilobytes. How much of the cache it evicts decides whether a mark takes 0.2 or 0.6 µs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from time import perf_counter_ns
from typing import Any

import torch
from torch import Tensor, nn

from paceline.measurement.averages import interquartile_mean
from paceline.measurement.mark_log import MarkLog, SpanKey, mark_around
from paceline.measurement.module_marks import ModuleMarks

TIMES, ROUNDS = 16, 6
"""Each repetition allocates new tensors, because their location in memory matters."""
LENGTH = 16
SIZE = 96
PASS = 65_536
NO_KEY: SpanKey = ("other", "")


class _Work(nn.Module):
    """About 30 µs of work with preallocated outputs.

    Freshly allocated outputs would lie elsewhere with marks than without, which changes the time by up to 10 %.
    """

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.result = torch.full((SIZE, SIZE), 1.0 / SIZE), torch.empty(SIZE, SIZE)
        self.passed, self.sums = torch.ones(2, PASS), torch.empty(PASS)

    def forward(self, x: Tensor) -> Tensor:
        torch.add(self.passed[0], self.passed[1], out=self.sums)
        return torch.mm(x, self.weight, out=self.result)


def mark_cost_s() -> dict[str, float]:
    """Seconds that a mark of each kind adds outside its own readings, on this machine now."""
    with torch.enable_grad(), torch.device("cpu"):
        call, module, node = (
            max(0.0, interquartile_mean(cost for _ in range(TIMES) for cost in costs_s()))
            for costs_s in (_call_costs_s, _module_costs_s, _node_costs_s)
        )
    return {"edge": call, "around": call, "module": module, "node": node}


class _Chain:
    """A sequence of `_Work`, reported to `watch` where set."""

    def __init__(self) -> None:
        self.pieces = [_Work() for _ in range(LENGTH)]
        self.x = torch.ones(SIZE, SIZE)
        self.watch: Callable[[str, str], None] | None = None

    def run(self) -> None:
        h, watch = self.x, self.watch
        for piece in self.pieces:
            if watch is not None:
                watch("other", "")
            h = piece.forward(h)


def _call_costs_s() -> list[float]:
    """Marks made by the loop and marks around a method, which cost about the same: three per piece of work."""
    chain = _Chain()

    @contextmanager
    def marks(log: MarkLog) -> Iterator[None]:
        chain.watch = lambda part, row: log.mark("edge", (part, row))
        undo = [mark_around(piece, "forward", log, NO_KEY, NO_KEY) for piece in chain.pieces]
        yield
        for put_back in undo:
            put_back()
        chain.watch = None

    return _extra_s(chain.run, marks)


def _module_costs_s() -> list[float]:
    model, x = nn.Sequential(*[_Work() for _ in range(LENGTH)]), torch.ones(SIZE, SIZE)
    return _extra_s(lambda: model(x), lambda log: ModuleMarks(model, lambda: log).installed())


def _node_costs_s() -> list[float]:
    x, weight = torch.ones(SIZE, SIZE, requires_grad=True), torch.full((SIZE, SIZE), 1.0 / SIZE)

    def chain() -> Tensor:
        y: Tensor = x
        for _ in range(LENGTH):
            y = torch.mm(y, weight)
        return y.sum()

    costs = []
    for _ in range(ROUNDS):
        end = chain()
        plain = _timed(end.backward)
        log = MarkLog()
        end = chain()
        with ModuleMarks(nn.Identity(), lambda log=log: log).installed():  # type: ignore[misc]
            log.mark("begin", NO_KEY)
            end.backward()
        walks = [m for m in log.marks if m[0] == "walk"]
        nodes = [m for m in log.marks if m[0] == "node"]
        marked = walks[1][2] - walks[0][3] - sum(ended - begun for _, _, begun, ended in nodes)
        costs.append((marked - plain) * 1e-9 / len(nodes))
    return costs


def _extra_s(run: Callable[[], Any], marks: Callable[[MarkLog], AbstractContextManager[None]]) -> list[float]:
    """What each mark adds to `run` outside its own readings.

    The second of two runs counts, as in a sampling window: installing the marks leaves caches cold for the first.
    """
    costs = []
    for _ in range(ROUNDS):
        run()
        alone = _timed(run)
        log = MarkLog()
        with marks(log):
            run()
            log.marks.clear()
            log.mark("begin", NO_KEY)
            run()
            log.mark("end", NO_KEY)
        between = log.marks[-1][2] - log.marks[0][3]
        costs.append((between * 1e-9 - log.overhead_s() - alone * 1e-9) / (len(log.marks) - 2))
    return costs


def _timed(work: Callable[[], Any]) -> int:
    start = perf_counter_ns()
    work()
    return perf_counter_ns() - start
