"""What a mark costs outside its two clock readings: the call and the return.

Each kind of mark is timed by itself, at a call that does almost nothing, with marks and without, alternately. Before
each call a pass over a few hundred kilobytes evicts part of the cache, as a layer does: that decides whether a mark
takes 0.2 or 0.6 µs. The pass stays below the size that PyTorch spreads over threads; with threads, a busy machine made
a mark look a hundred times as expensive.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from time import perf_counter_ns
from typing import Any

import torch
from torch import nn

from paceline.measurement.averages import interquartile_mean
from paceline.measurement.mark_log import LOOP, MarkLog, mark_around
from paceline.measurement.module_marks import ModuleMarks

ROUNDS = 80
PASS, PASSES = 16_384, 5
"""Elements of a pass, and how many of them there are, each over its own memory."""
NODES = 32


@cache
def mark_cost_s() -> dict[str, float]:
    """Seconds that a mark of each kind adds outside its own readings; measured once per process, in about 0.1 s."""
    with torch.enable_grad():
        evict = _eviction()
        around = _around_s(evict)
        return {"edge": around, "around": around, "module": _module_s(evict), "node": _node_s(evict)}


def _eviction() -> Callable[[], None]:
    sources, target = [torch.ones(2, PASS, device="cpu") for _ in range(PASSES)], torch.empty(PASS, device="cpu")

    def evict() -> None:
        for source in sources:
            torch.add(source[0], source[1], out=target)

    return evict


def _each_s(plain: Callable[[], Any], with_marks: Callable[[], Any], log: MarkLog, evict: Callable[[], None]) -> float:
    """What each mark adds to a call, outside the marks' own readings."""
    found = []
    for _ in range(ROUNDS):
        alone = _timed(plain, evict)
        log.marks.clear()
        marked = _timed(with_marks, evict)
        inside = sum(ended - begun for _, _, begun, ended in log.marks)
        found.append((marked - alone - inside) * 1e-9 / len(log.marks))
    return max(0.0, interquartile_mean(found))


def _timed(call: Callable[[], Any], evict: Callable[[], None]) -> int:
    evict()
    start = perf_counter_ns()
    call()
    return perf_counter_ns() - start


class _Nothing:
    def call(self) -> None:
        pass


def _around_s(evict: Callable[[], None]) -> float:
    plain, with_marks, log = _Nothing(), _Nothing(), MarkLog()
    mark_around(with_marks, "call", log, LOOP, LOOP)
    return _each_s(lambda: plain.call(), lambda: with_marks.call(), log, evict)


def _module_s(evict: Callable[[], None]) -> float:
    plain, with_marks, log, x = nn.Identity(), nn.Identity(), MarkLog(), torch.zeros(1, device="cpu")
    with ModuleMarks(with_marks, lambda: log).installed():
        return _each_s(lambda: plain(x), lambda: with_marks(x), log, evict)


def _node_s(evict: Callable[[], None]) -> float:
    """The backward pass of a short chain, from the end of the walk that finds its nodes and leaves them cached."""
    x, log = torch.zeros(1, requires_grad=True, device="cpu"), MarkLog()
    marks = ModuleMarks(nn.Identity(), lambda: log)
    marks.marks_every_node = True

    def chain() -> torch.Tensor:
        y = x
        for _ in range(NODES):
            y = y * 1.0
        evict()
        return y

    found = []
    with marks.installed():
        watched = torch.autograd.backward
        original: Any = watched.__wrapped__  # type: ignore[attr-defined]
        for _ in range(ROUNDS):
            end = chain()
            for handle in marks._mark_nodes([end]):
                handle.remove()
            alone = _timed(lambda: original(end), lambda: None)  # noqa: B023
            log.marks.clear()
            watched(chain())
            (*_, start), *nodes, (_, _, end_of_all, _) = log.marks
            inside = sum(ended - begun for _, _, begun, ended in nodes)
            found.append((end_of_all - start - inside - alone) * 1e-9 / len(nodes))
    return max(0.0, interquartile_mean(found))
