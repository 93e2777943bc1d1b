"""The Pareto front of time, money and samples in flight."""

from __future__ import annotations

import numpy as np

from paceline.planning.plan import Alternative
from paceline.planning.search import Mask, Search

LEVELS = (1, 4, 16, np.inf)
"""Limits on samples in flight, in batches of the workload, for each of which a front of time and money is filled."""
MIN_DIFFERENCE = 0.04
"""Neighbours on a front differ by at least this share in money."""


def front_of(found: list[Alternative]) -> tuple[Alternative, ...]:
    """The fastest first. Of nearly equal alternatives the one with fewer samples in flight is kept."""
    ordered = sorted(found, key=lambda one: (one.in_flight, one.time_s, one.money))
    kept: list[Alternative] = []
    for one in ordered:
        if not any(_as_good(other, one) for other in kept):
            kept.append(one)
    return tuple(sorted(kept, key=lambda one: (one.time_s, one.money)))


def _as_good(other: Alternative, one: Alternative) -> bool:
    """Whether `other` is as good in all three; differences of 1 % in time and money do not count."""
    return other.time_s <= 1.01 * one.time_s and other.money <= 1.01 * one.money and other.in_flight <= one.in_flight


def fill_front(search: Search, *, learned_only: bool) -> None:
    """Simulates the candidates expected on the front, within the remaining simulations."""
    in_flight = np.array([c.samples_in_flight for c in search.candidates]) / search.forecast.workload.batch
    known = np.array([not learned_only or search.epochs.known(c.undivided) for c in search.candidates], dtype=bool)
    for level in LEVELS:
        for number in _expected_front(search, search.alive & known & (in_flight <= level)):
            search.settle(number)


def _expected_front(search: Search, among: Mask) -> list[int]:
    time_s, money = search.expected()
    numbers = np.flatnonzero(among)
    ordered = numbers[np.lexsort((search.staleness_rank[numbers], money[numbers], time_s[numbers]))]
    kept: list[int] = []
    for number in map(int, ordered):
        if not kept or money[number] < (1 - MIN_DIFFERENCE) * money[kept[-1]]:
            kept.append(number)
    return kept
