"""What a mark costs beyond its own two readings of the clock: the call into it, and the way back.

It is measured between pieces of work with and without marks, in turns. The work is like a small layer's, a product and
a pass over a few hundred kilobytes: what it leaves of the caches decides whether a mark takes 0.2 or 0.6 microseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from time import perf_counter_ns
from typing import Any

import torch
from torch import Tensor, nn

from paceline.measurement.averages import middle
from paceline.measurement.module_marks import ModuleMarks
from paceline.measurement.tape import Owner, Tape, around

TIMES, ROUNDS = 16, 6
"""With new work each time: where it lies in memory makes a difference."""
LENGTH = 16
SIZE = 96
PASS = 65_536
NOBODY: Owner = ("other", "")


class _Work(nn.Module):
    """Some thirty microseconds, with places of its own for the results.

    New ones each time would lie elsewhere with marks than without, and work takes up to a tenth longer or shorter for
    that.
    """

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.result = torch.full((SIZE, SIZE), 1.0 / SIZE), torch.empty(SIZE, SIZE)
        self.passed, self.sums = torch.ones(2, PASS), torch.empty(PASS)

    def forward(self, x: Tensor) -> Tensor:
        torch.add(self.passed[0], self.passed[1], out=self.sums)
        return torch.mm(x, self.weight, out=self.result)


def mark_cost_s() -> dict[str, float]:
    """Seconds a mark of each kind adds outside itself, on this machine, now."""
    with torch.enable_grad(), torch.device("cpu"):
        call, module, node = (
            max(0.0, middle(cost for _ in range(TIMES) for cost in costs_s()))
            for costs_s in (_call_costs_s, _module_costs_s, _node_costs_s)
        )
    return {"edge": call, "around": call, "module": module, "node": node}


class _Chain:
    """Pieces of work one after another, told to whoever watches."""

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
    """A mark that the loop makes by itself, and marks around a method: three to a piece of work, about alike."""
    chain = _Chain()

    @contextmanager
    def marks(tape: Tape) -> Iterator[None]:
        chain.watch = lambda part, row: tape.mark("edge", (part, row))
        undo = [around(piece, "forward", tape, NOBODY, NOBODY) for piece in chain.pieces]
        yield
        for put_back in undo:
            put_back()
        chain.watch = None

    return _extra_s(chain.run, marks)


def _module_costs_s() -> list[float]:
    model, x = nn.Sequential(*[_Work() for _ in range(LENGTH)]), torch.ones(SIZE, SIZE)
    return _extra_s(lambda: model(x), lambda tape: ModuleMarks(model, lambda: tape).installed())


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
        tape = Tape()
        end = chain()
        with ModuleMarks(nn.Identity(), lambda tape=tape: tape).installed():  # type: ignore[misc]
            tape.mark("begin", NOBODY)
            end.backward()
        walks = [m for m in tape.marks if m[0] == "walk"]
        nodes = [m for m in tape.marks if m[0] == "node"]
        marked = walks[1][2] - walks[0][3] - sum(ended - begun for _, _, begun, ended in nodes)
        costs.append((marked - plain) * 1e-9 / len(nodes))
    return costs


def _extra_s(run: Callable[[], Any], marks: Callable[[Tape], AbstractContextManager[None]]) -> list[float]:
    """What each mark adds to `run`, beside what it knows of itself.

    The second of two runs counts, as in a look: the first finds caches that putting marks in place left cold.
    """
    costs = []
    for _ in range(ROUNDS):
        run()
        alone = _timed(run)
        tape = Tape()
        with marks(tape):
            run()
            tape.marks.clear()
            tape.mark("begin", NOBODY)
            run()
            tape.mark("end", NOBODY)
        between = tape.marks[-1][2] - tape.marks[0][3]
        costs.append((between * 1e-9 - tape.own_s() - alone * 1e-9) / (len(tape.marks) - 2))
    return costs


def _timed(work: Callable[[], Any]) -> int:
    start = perf_counter_ns()
    work()
    return perf_counter_ns() - start
