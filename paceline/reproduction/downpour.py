"""Downpour against delay compensation: seconds of an epoch by nodes, what becomes of the accuracy, what nodes cost."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from paceline.cluster import price_table
from paceline.formatting import listed, percent
from paceline.reproduction.study import Beside
from paceline.results.comparison_rows import CostRow, ExtraTable, Finding, PublishedRow
from paceline.results.table import ResultsTable

QUICK = (
    "This is the quick version: 2 epochs of 5,500 images instead of 20 of 55,000, once instead of three times. Seconds "
    "of an epoch are those of its steps times the 860 steps of a whole one."
)
SOURCE = "a study of 2017"
NODES = (4, 8, 12)
EPOCH_S = {"downpour": (3.52, 3.53, 3.55), "delay-compensated": (3.59, 3.61, 3.64)}
NAMES = {"downpour": "Downpour", "delay-compensated": "delay compensation"}
CLOCKS = {"virtual": "simulated", "local": "processes here"}
UNITS = {"virtual": "s an epoch, simulated", "local": "s an epoch, by processes"}
LONGER = {"downpour": 0.8, "delay-compensated": 1.4}
"""Percent that an epoch grew by from the fewest nodes to the most, as printed."""
WAYS: dict[str, dict[str, str]] = {
    "Downpour": {"strategy": "downpour"},
    "constant compensation": {"correction": "constant:0.04"},
    "adaptive compensation": {"correction": "adaptive:2"},
}
STEPS = math.ceil(55_000 / 64)
"""Of each worker, in a whole epoch."""
EPOCHS = 20
GUESSING = math.log(10)
"""The loss of saying that all ten classes are equally likely."""


def beside(found: ResultsTable, directory: Path) -> Beside:
    made = Beside()
    for strategy, published in EPOCH_S.items():
        for driver, clock in CLOCKS.items():
            for nodes, theirs in zip(NODES, published, strict=True):
                ours = _epoch_s(found, strategy, driver, nodes - 1)
                made.published.append(PublishedRow(
                    f"{NAMES[strategy]}, {nodes} nodes, {clock}", theirs, ours, UNITS[driver], SOURCE, along="nodes",
                    at=nodes, line=NAMES[strategy], our_line=f"{NAMES[strategy]}, {clock}",
                ))  # fmt: skip
        made.published.append(_growth(found, strategy))
    told = (_times_sentence(found), "published-lines"), (_accuracy_sentence(found), "accuracy-by-workers")
    made.findings = [Finding(sentence, figure) for sentence, figure in told if sentence]
    made.costs, made.tables = _costs(), [_by_workers(found), _prices()]
    return made


def _growth(found: ResultsTable, strategy: str) -> PublishedRow:
    """Of simulated nodes: processes that share a machine's cores are no nodes."""
    few, most = (_epoch_s(found, strategy, "virtual", nodes - 1) for nodes in (NODES[0], NODES[-1]))
    name = f"{NAMES[strategy]}, {NODES[-1]} nodes instead of {NODES[0]}, {CLOCKS['virtual']}"
    return PublishedRow(name, LONGER[strategy], 100 * (most / few - 1), "% longer an epoch", SOURCE)


def _rows(found: ResultsTable, **where: Any) -> list[dict[str, Any]]:
    return [row for row in found.summary if all(row.get(key) == value for key, value in where.items())]


def _epoch_s(found: ResultsTable, strategy: str, driver: str, workers: int) -> float:
    """Of a whole epoch, from the time of a worker's steps; of compensations, the constant one, which is cheaper."""
    where = {"strategy": strategy, "driver": driver, "workers": workers}
    if strategy == "delay-compensated":
        where["correction"] = "constant:0.04"
    for row in _rows(found, **where):
        return STEPS * workers / float(row.get("steps_per_s_mean", math.nan))
    return math.nan


def _times_sentence(found: ResultsTable) -> str:
    said = []
    for strategy, published in EPOCH_S.items():
        ours = [_epoch_s(found, strategy, "virtual", nodes - 1) for nodes in NODES]
        if any(map(math.isnan, ours)):
            return ""
        said.append(
            f"{listed(f'{s:.2f}' for s in ours)} s with {NAMES[strategy]} "
            f"({listed(f'{s:.2f}' for s in published)} published)"
        )
    return f"On {listed(NODES)} simulated nodes an epoch takes {' and '.join(said)}."


def _of_way(found: ResultsTable, way: str, driver: str) -> list[dict[str, Any]]:
    """Settings that came to an end, also to a bad one, from few workers to many."""
    rows = [row for row in _rows(found, driver=driver, **WAYS[way]) if row["n"] or row["diverged"]]
    return sorted(rows, key=lambda row: int(row["workers"]))


def _accuracy_sentence(found: ResultsTable) -> str:
    """What is left of the accuracy with the most workers."""
    ends = {way: (rows[0], rows[-1]) for way in WAYS if (rows := _of_way(found, way, "virtual"))}
    if not ends:
        return ""
    few, most = next(iter(ends.values()))
    said = [f"{way} {_end(found, last)} instead of {_end(found, first)}" for way, (first, last) in ends.items()]
    return f"With {most['workers']} workers instead of {few['workers']}, test accuracy is: {'; '.join(said)}."


def _end(found: ResultsTable, row: dict[str, Any]) -> str:
    accuracy = percent(float(row["test_accuracy_mean"]), 1) if row["n"] else "none"
    diverged, runs = _diverged(found, row["setting"]), row["n"] + row["diverged"]
    if not diverged:
        return accuracy
    return f"{accuracy} ({'diverged' if diverged == runs else f'{diverged} of {runs} diverged'})"


def _diverged(found: ResultsTable, setting: str) -> int:
    """Runs that stopped because their numbers grew beyond bounds, or that end worse than guessing would."""
    mine = [row for row in found.rows if row["setting"] == setting]
    return sum(row["status"] == "diverged" or (row.get("test_loss") or 0.0) > GUESSING for row in mine)


def _by_workers(found: ResultsTable) -> ExtraTable:
    """What becomes of training with more and more workers, those that diverged counted."""
    header = (
        "training", "time", "workers", "runs", "diverged", "accuracy, %", "least, %", "test loss", "updates late",
    )  # fmt: skip
    rows = [
        (
            way, clock, f"{row['workers']}", f"{row['n'] + row['diverged']}", f"{_diverged(found, row['setting'])}",
            _figure(row, "test_accuracy_mean", 100), _figure(row, "test_accuracy_min", 100),
            _figure(row, "test_loss_mean"), _figure(row, "mean_staleness_mean"),
        )
        for way in WAYS
        for driver, clock in CLOCKS.items()
        for row in _of_way(found, way, driver)
    ]  # fmt: skip
    return ExtraTable("Accuracy and divergence by workers", header, tuple(rows))


def _figure(row: dict[str, Any], column: str, factor: float = 1.0) -> str:
    """Of the runs that finished; nothing where none did."""
    value = factor * float(row.get(column, math.nan))
    return f"{value:.4g}" if math.isfinite(value) else ""


def _costs() -> list[CostRow]:
    """What a training would cost at the study's speed is told with it."""
    training_s = EPOCHS * EPOCH_S["downpour"][0]
    rows = []
    for row in price_table():
        cents = 100 * row.per_year / (365 * 24 * 3600) * training_s
        rows.append(CostRow(
            f"{row.instances} × {row.machine.name}", row.per_year, "US$ a year",
            f"as in August 2017; {EPOCHS} epochs of {EPOCH_S['downpour'][0]} s cost {cents:.2g} cents",
        ))  # fmt: skip
    return rows


def _prices() -> ExtraTable:
    header = ("machines", "vCPUs", "memory, GiB", "GPU memory, GiB", "published, US$ a year", "worked out, US$ a year")
    rows = tuple(
        (
            f"{row.instances} × {row.machine.name}", str(row.vcpus), f"{row.memory_bytes / 2**30:g}",
            f"{row.gpu_memory_bytes / 2**30:g}", f"{row.printed_per_year:,.2f}", f"{row.per_year:,.2f}",
        )
        for row in price_table()
    )  # fmt: skip
    return ExtraTable("Prices of August 2017", header, rows)
