"""The virtual driver's steady state: the difference of two runs, one half as long, so that start and end cancel."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from paceline.simulation.simulation import simulate_time
from paceline.simulation.virtual_cluster import VirtualCluster
from paceline.strategy.distribution import Distribution
from paceline.strategy.strategy import Strategy

MOST_STEPS = 60_000
"""Over all workers; with many workers each is given fewer steps."""
FEWEST_ROUNDS = 8
SLOTS = 2
"""Payloads of one worker that may wait to be applied while it continues."""
BUSY = 0.95
"""From this utilisation on, a resource counts as busy all the time."""
UNATTRIBUTED = "unattributed"


@dataclass(frozen=True)
class StepTime:
    """On average over all workers; computing, communicating and waiting add up to `step_s`."""

    step_s: float
    computing_s: float
    communicating_s: float
    waiting_s: dict[str, float] = field(default_factory=dict)
    """By cause: the server, the network, or straggling members of the worker's group."""
    staleness: float = 0.0
    server_share: float = 0.0
    applied: float = 1.0
    """The share of steps whose gradient is not dropped."""
    link_share: float = 0.0
    """How much of the time the server's link is occupied in one direction."""
    pushes_per_step: float = 0.0

    @property
    def bound(self) -> str:
        """compute, network, server or straggling: what is busy all the time, else what most of a step goes to."""
        if max(self.server_share, self.link_share) > BUSY:
            return "server" if self.server_share >= self.link_share else "network"
        shares = {"compute": self.computing_s, "network": self.communicating_s, "server": 0.0, "straggling": 0.0}
        for what, seconds in self.waiting_s.items():
            shares[what] += seconds
        return max(shares, key=lambda what: shares[what])


def play_steady(
    strategy: Strategy,
    workers: int,
    steps: int,
    cluster: Callable[[], VirtualCluster],
    message_bytes: int,
    seed: int,
) -> StepTime:
    """About `steps` steps per worker, fewer with many workers; `cluster` makes a new cluster for each run.

    What was waited for is not attributed yet.
    """
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
    return StepTime(
        round_s,
        found["computing"] * scale,
        found["communicating"] * scale,
        {UNATTRIBUTED: found["waiting"] * scale},
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
