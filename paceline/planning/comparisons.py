"""Compares the pick with the best candidate that differs in one respect: machine, strategy, precision, ..."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from paceline.planning.candidate import Candidate, strategy_kind
from paceline.planning.search import Mask, Search, Value


@dataclass(frozen=True)
class BestOther:
    what: str
    """machine, strategy, synchronous, more workers, fewer workers, precision or batch."""
    number: int | None
    """The best simulated candidate of this kind; None if none meets the objective."""


def compare_pick(search: Search, pick: int, value: Value, among: Mask) -> list[BestOther]:
    """Within the remaining simulations, and without training anything."""
    chosen, batch = search.candidates[pick], search.forecast.workload.batch
    others: dict[str, Callable[[Candidate], bool]] = {}
    if chosen.workers > 1 and not chosen.waits_for_all:
        others["synchronous"] = lambda c: c.workers > 1 and c.waits_for_all and c.strategy.push_every == 1
    if chosen.workers > 1:
        others["strategy"] = lambda c: c.workers > 1 and strategy_kind(c.strategy) != strategy_kind(chosen.strategy)
        others["fewer workers"] = lambda c: c.workers < chosen.workers
    others["more workers"] = lambda c: c.workers > chosen.workers
    others["machine"] = lambda c: c.machine != chosen.machine
    if chosen.precision not in ("float32", "float64"):
        others["precision"] = lambda c: c.precision == "float32"
    if chosen.batch != batch:
        others["batch"] = lambda c: c.batch == batch
    known = np.array([search.epochs.known(c.undivided) for c in search.candidates], dtype=bool)
    found = []
    for what, differs in others.items():
        those = among & known & search.alive & np.array([differs(c) for c in search.candidates], dtype=bool)
        best = search.least(value, those) if those.any() else None
        if best is not None or (those.any() and not np.isfinite(value(*search.bounds())[those]).any()):
            found.append(BestOther(what, best))
    return found
