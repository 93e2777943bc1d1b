"""Cuts a chain of layers into stages so that the slowest stage is as fast as possible (linear partitioning)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

Cut = tuple[int, ...]
"""The number of each stage's first layer; the first stage begins with layer 0."""


def balanced_cut(costs: Sequence[float], stages: int) -> Cut:
    """The cut with the least maximum of the stages' sums; among equals the one whose later stages are smaller."""
    if not 1 <= stages <= len(costs):
        raise ValueError(f"{len(costs)} layers cannot be {stages} stages")
    ends = [0.0, *accumulate(costs)]
    # best[n]: the least maximum of the first n layers in the stages so far, and where its last stage begins.
    best: list[tuple[float, int]] = [(ends[n], 0) for n in range(len(costs) + 1)]
    history = [best]
    for stage in range(2, stages + 1):
        before = history[-1]
        best = [(float("inf"), 0)] * (len(costs) + 1)
        for n in range(stage, len(costs) + 1):
            best[n] = min((max(before[k][0], ends[n] - ends[k]), -k) for k in range(stage - 1, n))
            best[n] = best[n][0], -best[n][1]
        history.append(best)
    cut, n = [], len(costs)
    for best in reversed(history):
        n = best[n][1]
        cut.append(n)
    return tuple(reversed(cut))


def stage_sums(costs: Sequence[float], cut: Cut) -> list[float]:
    return [sum(costs[first:end]) for first, end in zip(cut, (*cut[1:], len(costs)), strict=True)]
