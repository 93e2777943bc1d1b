"""The front: what nothing else betters in time, money and samples under way together."""

from __future__ import annotations

import numpy as np

from paceline.planning.plan import Alternative
from paceline.planning.search import Mask, Search

LEVELS = (1, 4, 16, np.inf)
"""Samples under way, in batches of the workload, up to which a front of time and money is filled."""
NEXT = 0.04
"""Two neighbours of a front differ by at least this share in time or money."""


def front_of(found: list[Alternative]) -> tuple[Alternative, ...]:
    """The fastest first. Of equals, and of those that hardly differ, the one with fewer samples under way is kept."""
    ordered = sorted(found, key=lambda one: (one.under_way, one.time_s, one.money))
    kept: list[Alternative] = []
    for one in ordered:
        if not any(_as_good(other, one) for other in kept):
            kept.append(one)
    return tuple(sorted(kept, key=lambda one: (one.time_s, one.money)))


def _as_good(other: Alternative, one: Alternative) -> bool:
    """In all three; a hundredth of time and of money does not count."""
    return other.time_s <= 1.01 * one.time_s and other.money <= 1.01 * one.money and other.under_way <= one.under_way


def fill_front(search: Search, *, learnt_only: bool) -> None:
    """Simulates what is expected on the front, as far as may still be simulated."""
    under_way = np.array([c.samples_under_way for c in search.candidates]) / search.forecast.workload.batch
    known = np.array([not learnt_only or search.epochs.known(c) for c in search.candidates], dtype=bool)
    for level in LEVELS:
        for number in _expected_front(search, search.alive & known & (under_way <= level)):
            search.settle(number)


def _expected_front(search: Search, among: Mask) -> list[int]:
    time_s, money = search.expected()
    numbers = np.flatnonzero(among)
    ordered = numbers[np.lexsort((search.gentleness[numbers], money[numbers], time_s[numbers]))]
    kept: list[int] = []
    for number in map(int, ordered):
        if not kept or money[number] < (1 - NEXT) * money[kept[-1]]:
            kept.append(number)
    return kept
