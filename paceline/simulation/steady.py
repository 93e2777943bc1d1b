"""The virtual driver's steady state: the difference of two runs, one half as long, so that start and end cancel."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from paceline.simulation.simulation import Simulator
from paceline.simulation.virtual_cluster import VirtualCluster
from paceline.simulation.worker_times import WorkerTimes
from paceline.strategy.ledger import LedgerSummary
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
    *,
    message_bytes: int = 0,
    seed: int = 0,
) -> Steady:
    """About `steps` steps per worker, fewer with many workers; `cluster` makes a new cluster for each run."""
    every = max(strategy.push_every, strategy.fetch_every)
    least = FEWEST_ROUNDS if every == 1 else FEWEST_ROUNDS // 2 * every
    steps = max(least, min(steps, MOST_STEPS // workers))
    runs = []
    for count in (steps, steps // 2):
        played = play(strategy, workers, count, cluster(), message_bytes=message_bytes, seed=seed)
        runs.append(_sums(played.now_s, played.times, played.coordinator.ledger.summary()))
    return _difference(runs[0], runs[1], workers)


def play(
    strategy: Strategy,
    workers: int,
    steps: int,
    cluster: VirtualCluster,
    *,
    message_bytes: int = 0,
    seed: int = 0,
    spans: int = 0,
) -> Simulator:
    """On average `steps` steps per worker, from beginning to end; the trace keeps at most `spans` spans."""
    batches = steps if strategy.full_pass_per_worker else workers * steps
    simulator = Simulator(
        strategy, workers, cluster, batches=batches, seed=seed, message_bytes=message_bytes, spans=spans, slots=SLOTS
    )
    simulator.driver.run(workers)
    return simulator


@dataclass(frozen=True)
class _Sums:
    seconds: float
    steps: int
    computing_s: float
    communicating_s: float
    waiting_s: float
    server_s: float
    stale: float
    payloads: int
    applied: int
    closed: int


def _sums(seconds: float, times: WorkerTimes, ledger: LedgerSummary) -> _Sums:
    workers = times.records({})
    payloads = sum(ledger.staleness.values())
    return _Sums(
        seconds,
        sum(w.batches for w in workers),
        math.fsum(w.computing_s for w in workers),
        math.fsum(w.communicating_s for w in workers),
        math.fsum(w.waiting_s for w in workers),
        times.server_s,
        ledger.mean_staleness * payloads,
        payloads,
        ledger.applied,
        ledger.applied + ledger.dropped,
    )


def _difference(long: _Sums, short: _Sums, workers: int) -> Steady:
    if long.seconds <= short.seconds or long.steps <= short.steps:
        short = replace(short, **dict.fromkeys(short.__dataclass_fields__, 0))
    steps, seconds = long.steps - short.steps, long.seconds - short.seconds
    round_s = seconds * workers / steps
    computing_s, communicating_s, waiting_s = (
        max(0.0, getattr(long, name) - getattr(short, name)) for name in ("computing_s", "communicating_s", "waiting_s")
    )
    scale = round_s / (computing_s + communicating_s + waiting_s)
    payloads = max(1, long.payloads - short.payloads)
    return Steady(
        round_s,
        computing_s * scale,
        communicating_s * scale,
        waiting_s * scale,
        staleness=max(0.0, (long.stale - short.stale) / payloads),
        server_share=min(1.0, max(0.0, (long.server_s - short.server_s) / seconds)),
        pushes_per_step=payloads / steps,
        applied=(long.applied - short.applied) / max(1, long.closed - short.closed),
    )
