"""What a mark costs beyond its own two readings of the clock: the call into it, and the way back.

It is measured between small matrix products, with and without marks, in turns: between operations that fill the
caches a mark takes two or three times as long as in a loop of nothing but marks.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import perf_counter_ns
from typing import Any

import torch
from torch import Tensor, nn

from paceline.measure.module_marks import ModuleMarks
from paceline.measure.tape import Owner, Tape, around

ROUNDS = 60
LENGTH = 24
SIZE = 96
NOBODY: Owner = ("other", "")


class _Work(nn.Module):
    """About ten microseconds of arithmetic."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.full((SIZE, SIZE), 1.0 / SIZE)

    def forward(self, x: Tensor) -> Tensor:
        return torch.mm(x, self.weight)


def mark_cost_s() -> dict[str, float]:
    """Seconds a mark of each kind adds outside itself, on this machine, now."""
    with torch.enable_grad(), torch.device("cpu"):
        return {"edge": _edge_cost_s(), "around": _around_cost_s(), "module": _module_cost_s(), "node": _node_cost_s()}


def _edge_cost_s() -> float:
    """A mark that the loop makes by itself, through one call."""
    work, x = [_Work() for _ in range(LENGTH)], torch.ones(SIZE, SIZE)

    def chain(watch: Callable[[str, str], None] | None) -> None:
        h = x
        for piece in work:
            if watch is not None:
                watch("other", "")
            h = piece.forward(h)

    def marked(tape: Tape) -> None:
        chain(lambda part, row: tape.mark("edge", (part, row)))

    return _extra_s(lambda: chain(None), marked)


def _around_cost_s() -> float:
    """Marks around a method."""
    work, x = [_Work() for _ in range(LENGTH)], torch.ones(SIZE, SIZE)

    def chain() -> None:
        h = x
        for piece in work:
            h = piece.forward(h)

    def marked(tape: Tape) -> None:
        undo = [around(piece, "forward", tape, NOBODY, NOBODY) for piece in work]
        start = len(tape.marks)
        tape.mark("begin", NOBODY)
        chain()
        tape.mark("end", NOBODY)
        tape.marks[:] = tape.marks[start:]
        for put_back in undo:
            put_back()

    return _extra_s(chain, marked)


def _module_cost_s() -> float:
    model, x = nn.Sequential(*[_Work() for _ in range(LENGTH)]), torch.ones(SIZE, SIZE)

    def marked(tape: Tape) -> None:
        with ModuleMarks(model, lambda: tape).installed():
            tape.mark("begin", NOBODY)
            model(x)
            tape.mark("end", NOBODY)

    return _extra_s(lambda: model(x), marked)


def _node_cost_s() -> float:
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
    return max(0.0, median(costs))


def _extra_s(plain: Callable[[], Any], marked: Callable[[Tape], None]) -> float:
    """What the marks made by `marked` add to `plain`, each, beside what they know of themselves."""
    costs = []
    for number in range(ROUNDS + 3):
        alone = _timed(plain)
        tape = Tape()
        start = perf_counter_ns()
        marked(tape)
        end = perf_counter_ns()
        kinds = [m[0] for m in tape.marks]
        if "begin" in kinds:  # putting marks in place takes its own time
            start, end = tape.marks[kinds.index("begin")][3], tape.marks[kinds.index("end")][2]
        between = [m for m in tape.marks if m[0] not in ("begin", "end")]
        own = sum(ended - begun for _, _, begun, ended in between)
        if number >= 3:
            costs.append((end - start - own - alone) * 1e-9 / len(between))
    return max(0.0, median(costs))


def _timed(work: Callable[[], Any]) -> int:
    start = perf_counter_ns()
    work()
    return perf_counter_ns() - start
