"""Downpour and delay compensation: growth of the epoch time with nodes, accuracy with many workers, cost of nodes.

The step time of the simulation is taken from the publication. The absolute epoch time is therefore an input, not a
result: only its growth from few nodes to many is compared.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paceline.cluster import price_table
from paceline.formatting import listed, percent, signed_percent
from paceline.reproduction.study import Conclusions
from paceline.results.comparison_rows import CostRow, ExtraTable, Finding, PublishedRow
from paceline.results.table import ResultsTable

NODES = (4, 8, 12)
EPOCH_S = {"downpour": (3.52, 3.53, 3.55), "delay-compensated": (3.59, 3.61, 3.64)}
"""As published, on 4, 8 and 12 nodes."""
GROWTH = {"downpour": 0.008, "delay-compensated": 0.014}  # of the epoch time from 4 to 12 nodes, as published
NAMES = {"downpour": "Downpour", "delay-compensated": "delay compensation"}
CLOCKS = {"virtual": "simulated", "local": "measured, processes on this machine", "ray": "measured, a Ray cluster"}
WAYS: dict[str, dict[str, str]] = {
    "Downpour": {"strategy": "downpour"},
    "constant compensation": {"correction": "constant:0.04"},
    "adaptive compensation": {"correction": "adaptive:2"},
}
STEPS = math.ceil(55_000 / 64)  # of each worker per epoch
EPOCHS = 20
GUESSING = math.log(10)  # loss of predicting ten classes with equal probability


def conclude(found: ResultsTable, directory: Path) -> Conclusions:
    return Conclusions(
        findings=[
            Finding(_accuracy(found), "accuracy-by-workers"),
            Finding(_growth_sentence(found), "published-lines"),
            Finding(
                "The step time of the simulation is taken from the publication; absolute epoch times are an input."
            ),
        ],
        published=[row for strategy in EPOCH_S for row in _relative(found, strategy)],
        costs=_costs(),
        tables=[_by_workers(found)],
    )


def _relative(found: ResultsTable, strategy: str) -> list[PublishedRow]:
    """Epoch times relative to those on the fewest nodes: what the simulation does not take from the publication."""
    theirs, ours = EPOCH_S[strategy], _epochs_s(found, strategy)
    return [
        PublishedRow(
            f"{NAMES[strategy]}, {nodes} nodes", 100 * theirs[at] / theirs[0], 100 * ours[at] / ours[0],
            "% of the epoch time on 4 nodes", along="nodes", at=nodes, line=NAMES[strategy],
            our_line=f"{NAMES[strategy]}, simulated",
        )
        for at, nodes in enumerate(NODES)
    ]  # fmt: skip


def _growth_sentence(found: ResultsTable) -> str:
    said, theirs = [], []
    for strategy, published in GROWTH.items():
        few, *_, most = _epochs_s(found, strategy)
        if not math.isfinite(most / few):
            return ""
        said.append(f"{signed_percent(most / few - 1)} ({NAMES[strategy]})")
        theirs.append(signed_percent(published))
    both = f"{listed(said)}; Mullapudi measured {listed(theirs)}"
    return f"From {NODES[0]} to {NODES[-1]} nodes, simulated epoch times change by {both}."


def _epochs_s(found: ResultsTable, strategy: str) -> list[float]:
    """Simulated time of a full epoch on each number of nodes; with constant compensation, which is cheaper."""
    way = "constant compensation" if strategy == "delay-compensated" else "Downpour"
    by_workers = {row["workers"]: _epoch_s(row) for row in _of_way(found, way, "virtual")}
    return [by_workers.get(nodes - 1, math.nan) for nodes in NODES]


def _epoch_s(row: Mapping[str, Any]) -> float:
    """From a worker's steps/s."""
    return STEPS * int(row["workers"]) / float(row.get("steps_per_s_mean") or math.nan)


def _of_way(found: ResultsTable, way: str, driver: str) -> list[dict[str, Any]]:
    """Settings whose runs finished or diverged, from few workers to many."""
    where = {"driver": driver, **WAYS[way]}
    rows = [row for row in found.summary if all(row.get(key) == value for key, value in where.items())]
    return sorted((row for row in rows if row["n"] or row["diverged"]), key=lambda row: int(row["workers"]))


def _accuracy(found: ResultsTable) -> str:
    """Test accuracy with the most simulated workers; runs that diverged have none."""
    ends = {way: rows[-1] for way in WAYS if (rows := _of_way(found, way, "virtual"))}
    if not ends:
        return ""
    workers = max(int(row["workers"]) for row in ends.values())
    ends = {way: row for way, row in ends.items() if int(row["workers"]) == workers}
    runs = {way: row["n"] + row["diverged"] for way, row in ends.items()}
    failed = [way for way, row in ends.items() if 2 * _diverged(found, row["setting"]) >= runs[way]]
    said = [f"{listed(failed)} diverge{'s' * (len(failed) == 1)}"] if failed else []
    reached = [
        f"{percent(float(row['test_accuracy_mean']))} with {way}" for way, row in ends.items() if way not in failed
    ]
    said += [f"test accuracy is {listed(reached)}"] if reached else []
    once = " (one run each)" * all(many == 1 for many in runs.values())
    return f"With {workers} simulated workers, {'; '.join(said)}{once}."


def _diverged(found: ResultsTable, setting: str) -> int:
    """Runs that stopped with non-finite values, or that end worse than guessing."""
    mine = [row for row in found.rows if row["setting"] == setting]
    return sum(row["status"] == "diverged" or (row.get("test_loss") or 0.0) > GUESSING for row in mine)


def _by_workers(found: ResultsTable) -> ExtraTable:
    header = (
        "training", "time", "workers", "runs", "diverged", "accuracy, %", "minimum, %", "test loss", "staleness",
        "epoch time, s",
    )  # fmt: skip
    rows = [
        (
            way, clock, f"{row['workers']}", f"{row['n'] + row['diverged']}", f"{_diverged(found, row['setting'])}",
            _figure(row, "test_accuracy_mean", 100), _figure(row, "test_accuracy_min", 100),
            _figure(row, "test_loss_mean"), _figure(row, "mean_staleness_mean"),
            _figure({"s": _epoch_s(row)}, "s"),
        )
        for way in WAYS
        for driver, clock in CLOCKS.items()
        for row in _of_way(found, way, driver)
    ]  # fmt: skip
    return ExtraTable("Accuracy and divergence by workers", header, tuple(rows))


def _figure(row: dict[str, Any], column: str, factor: float = 1.0) -> str:
    """A formatted value over finished runs; empty if none finished."""
    value = factor * float(row.get(column, math.nan))
    return f"{value:.4g}" if math.isfinite(value) else ""


def _costs() -> list[CostRow]:
    """Prices per year, with the cost of one training at the published speed."""
    training_s = EPOCHS * EPOCH_S["downpour"][0]
    trained = f"{EPOCHS} epochs of {EPOCH_S['downpour'][0]} s"
    return [
        CostRow(
            f"{row.instances} × {row.machine.name}", row.per_year, "US$ per year",
            f"prices of August 2017; {trained} cost {100 * row.per_year / (365 * 24 * 3600) * training_s:.2g} cents",
        )
        for row in price_table()
    ]  # fmt: skip
