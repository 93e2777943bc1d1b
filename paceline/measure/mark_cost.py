"""What a mark costs beyond its own two readings of the clock: the call into the hook, and the way back.

It is measured on modules and nodes that do next to nothing, with and without marks, in turns.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import perf_counter_ns

import torch
from torch import nn

from paceline.measure.module_marks import ModuleMarks
from paceline.measure.tape import Tape

ROUNDS = 40
LENGTH = 30


class _Nothing(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


def mark_cost_s() -> dict[str, float]:
    """Seconds a mark of each kind adds outside itself, on this machine, now."""
    with torch.enable_grad(), torch.device("cpu"):
        return {"module": _module_cost_s(), "node": _node_cost_s()}


def _module_cost_s() -> float:
    model = nn.Sequential(*[_Nothing() for _ in range(LENGTH)])
    x = torch.zeros(1)
    return _extra_s(lambda: model(x), model, 2 * (LENGTH + 1))


def _node_cost_s() -> float:
    x = torch.zeros(1, requires_grad=True)

    def chain() -> Callable[[], None]:
        y = x
        for _ in range(LENGTH):
            y = y.neg()
        return y.backward

    costs = []
    for _ in range(ROUNDS):
        tape = Tape()
        plain = _timed(chain())
        marks = ModuleMarks(nn.Identity(), lambda tape=tape: tape)  # type: ignore[misc]
        backward = chain()
        with marks.installed():
            tape.mark("edge", ("other", ""))
            backward()
            tape.mark("edge", ("other", ""))
        walks = [m for m in tape.marks if m[0] == "walk"]
        marked = walks[1][2] - walks[0][3] - sum(m[3] - m[2] for m in tape.marks if m[0] == "node")
        costs.append((marked - plain) * 1e-9 / (LENGTH + 1))
    return max(0.0, median(costs))


def _extra_s(work: Callable[[], object], model: nn.Module, marks: int) -> float:
    costs = []
    for _ in range(ROUNDS):
        plain = _timed(work)
        tape = Tape()
        with ModuleMarks(model, lambda tape=tape: tape).installed():  # type: ignore[misc]
            marked = _timed(work)
        own = sum(ended - begun for _, _, begun, ended in tape.marks)
        costs.append((marked - own - plain) * 1e-9 / marks)
    return max(0.0, median(costs))


def _timed(work: Callable[[], object]) -> int:
    start = perf_counter_ns()
    work()
    return perf_counter_ns() - start
