"""The virtual driver's steady state: the difference of two runs, one half as long, so that start and end cancel."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from paceline.simulation.simulation import simulate_time
from paceline.simulation.virtual_cluster import VirtualCluster
from paceline.strategy.distribution import Distribution
from paceline.strategy.strategy import Strategy

MOST_STEPS = 60_000
"""Over all workers; with many workers each is given fewer steps."""
FEWEST_ROUNDS = 8
SLOTS = 2
"""Payloads of one worker that may wait to be applied while it continues."""


@dataclass(frozen=True)
class Steady:
    """Averages per step of a worker, or per round of a group."""

    round_s: float
    computing_s: float
    communicating_s: float
    waiting_s: float
    staleness: float
    server_share: float
    pushes_per_step: float
    applied: float


def play_steady(
    strategy: Strategy,
    workers: int,
    steps: int,
    cluster: Callable[[], VirtualCluster],
    message_bytes: int,
    seed: int,
) -> Steady:
    """About `steps` steps per worker, fewer with many workers; `cluster` makes a new cluster for each run."""
    every = max(strategy.push_every, strategy.fetch_every)
    least = FEWEST_ROUNDS if every == 1 else FEWEST_ROUNDS // 2 * every
    steps = max(least, min(steps, MOST_STEPS // workers))
    long, short = (
        _totals(
            simulate_time(
                strategy, workers, count, cluster(), message_bytes=message_bytes, seed=seed, spans=0, slots=SLOTS
            ).distribution
        )
        for count in (steps, steps // 2)
    )
    if long["seconds"] <= short["seconds"] or long["steps"] <= short["steps"]:
        short = dict.fromkeys(long, 0.0)
    found = {name: max(0.0, long[name] - short[name]) for name in long}
    round_s, payloads = found["seconds"] * workers / found["steps"], max(1.0, found["payloads"])
    scale = round_s / (found["computing"] + found["communicating"] + found["waiting"])
    return Steady(
        round_s,
        found["computing"] * scale,
        found["communicating"] * scale,
        found["waiting"] * scale,
        staleness=found["staleness"] / payloads,
        server_share=min(1.0, found["server"] / found["seconds"]),
        pushes_per_step=payloads / found["steps"],
        applied=found["applied"] / max(1.0, found["closed"]),
    )


def _totals(found: Distribution) -> dict[str, float]:
    """Sums over a run, of which two can be subtracted from each other."""
    workers, ledger = found.by_worker, found.ledger
    payloads = sum(ledger.staleness.values())
    return {
        "seconds": found.seconds,
        "steps": found.steps,
        "computing": math.fsum(w.computing_s for w in workers),
        "communicating": math.fsum(w.communicating_s for w in workers),
        "waiting": math.fsum(w.waiting_s for w in workers),
        "server": found.server_s,
        "staleness": ledger.mean_staleness * payloads,
        "payloads": payloads,
        "applied": ledger.applied,
        "closed": ledger.applied + ledger.dropped,
    }
