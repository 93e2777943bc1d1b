"""The Ray driver against the asynchronous parameter server of Ray's documentation, on one machine."""

from __future__ import annotations

import importlib.util
from typing import Any

from benchmarks.options import Options
from benchmarks.ray_server import ray_updates_per_s
from benchmarks.rounds import Spread, how_many, interleave, ratios
from benchmarks.server import WORKERS, Steady, workload
from benchmarks.table import show, show_table, verdict
from paceline.strategy.presets import find_strategy

BARS = {"downpour": 5.0, "delay-compensated": None}
"""Of the updates/s of Ray's pattern."""
STORE_BYTES = 300 << 20


def driver_updates_per_s(strategy: str, epochs: int) -> float:
    """Without the first epoch, in which processes and caches warm up."""
    from paceline.training.drivers.ray import launcher

    watcher = Steady()
    run = launcher.run(workload(epochs), find_strategy(strategy), workers=WORKERS, watcher=watcher)
    return run.updates / epochs / watcher.seconds_an_epoch


def run(options: Options) -> dict[str, Any]:
    if importlib.util.find_spec("ray") is None:
        show("Ray is not installed: pip install 'paceline[ray]'")
        return {}
    import ray

    quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
    ray.init(address="local", num_cpus=WORKERS + 1, object_store_memory=STORE_BYTES, **quiet)
    try:
        measures: dict[str, Any] = {"Ray's pattern": lambda: ray_updates_per_s(60 if options.quick else 200)}
        for name in BARS:
            measures[name] = lambda name=name: driver_updates_per_s(name, 2 if options.quick else 3)
        rounds = how_many(options.rounds, options.quick, 25.0, 120.0)
        found = interleave(measures, rounds)
    finally:
        ray.shutdown()
    rows = []
    for name, rates in found.items():
        against, bar = Spread.of(ratios(rates, found["Ray's pattern"])), BARS.get(name)
        met = verdict(against.median, bar) if bar else ""
        rows.append([name, f"{Spread.of(rates).median:,.0f}", against.text(1), met])
    show_table(
        f"{WORKERS} workers and a server as Ray actors on one machine, dnn, batch 64, {rounds} rounds",
        ["strategy", "updates/s", "of Ray's pattern", "bar 5"],
        rows,
    )
    return {"updates_per_s": found}
