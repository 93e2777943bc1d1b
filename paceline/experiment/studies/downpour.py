"""Downpour against delay compensation: seconds of an epoch by nodes, what becomes of the accuracy, what nodes cost."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from paceline.cluster import price_table
from paceline.experiment.collecting import Collection
from paceline.experiment.studies.study import Beside
from paceline.report.given_rows import Cost, Finding, GivenTable, Published
from paceline.report.words import listed, percent

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
STEPS = math.ceil(55_000 / 64)
"""Of each worker, in a whole epoch."""
EPOCHS = 20


def beside(found: Collection, directory: Path) -> Beside:
    made = Beside()
    for strategy, published in EPOCH_S.items():
        for driver, clock in CLOCKS.items():
            for nodes, theirs in zip(NODES, published, strict=True):
                ours = _epoch_s(found, strategy, driver, nodes - 1)
                made.published.append(Published(
                    f"{NAMES[strategy]}, {nodes} nodes, {clock}", theirs, ours, UNITS[driver], SOURCE, along="nodes",
                    at=nodes, line=NAMES[strategy], our_line=f"{NAMES[strategy]}, {clock}",
                ))  # fmt: skip
    made.findings = [Finding(_times_sentence(found), "published-lines"), Finding(_accuracy_sentence(found))]
    made.findings = [finding for finding in made.findings if finding.sentence]
    made.costs, made.tables = _costs(), [_prices()]
    return made


def _rows(found: Collection, **where: Any) -> list[dict[str, Any]]:
    return [row for row in found.summary if all(row.get(key) == value for key, value in where.items())]


def _epoch_s(found: Collection, strategy: str, driver: str, workers: int) -> float:
    """Of a whole epoch, from the time of a worker's steps; of compensations, the constant one, which is cheaper."""
    where = {"strategy": strategy, "driver": driver, "workers": workers}
    if strategy == "delay-compensated":
        where["compensation"] = "constant:0.04"
    for row in _rows(found, **where):
        return STEPS * workers / float(row.get("steps_per_s_mean", math.nan))
    return math.nan


def _times_sentence(found: Collection) -> str:
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


def _accuracy_sentence(found: Collection) -> str:
    """Up to how many workers each learns, and what is left of it with the most."""
    said = []
    rows = [row for row in _rows(found, driver="virtual") if row["n"] or row["diverged"]]
    for name, where in (
        ("Downpour", {"strategy": "downpour"}),
        ("constant compensation", {"compensation": "constant:0.04"}),
        ("adaptive compensation", {"compensation": "adaptive:2"}),
    ):
        mine = sorted(
            (row for row in rows if all(row.get(k) == v for k, v in where.items())), key=lambda r: int(r["workers"])
        )
        if not mine:
            return ""
        first, last = mine[0], mine[-1]
        ends = [float(row.get("test_accuracy_mean", math.nan)) for row in (first, last)]
        said.append(f"{name} {percent(ends[1], 1)} instead of {percent(ends[0], 1)}")
        workers = (first["workers"], last["workers"])
    return f"With {workers[1]} workers instead of {workers[0]}, test accuracy is: {'; '.join(said)}."


def _costs() -> list[Cost]:
    """What a training would cost at the study's speed is told with it."""
    training_s = EPOCHS * EPOCH_S["downpour"][0]
    rows = []
    for row in price_table():
        cents = 100 * row.per_year / (365 * 24 * 3600) * training_s
        rows.append(Cost(
            f"{row.instances} × {row.machine.name}", row.per_year,
            what=f"a year, as in August 2017; {EPOCHS} epochs of {EPOCH_S['downpour'][0]} s cost {cents:.2g} cents",
        ))  # fmt: skip
    return rows


def _prices() -> GivenTable:
    header = ("machines", "vCPUs", "memory, GiB", "GPU memory, GiB", "US$ a year, published", "US$ a year, worked out")
    rows = tuple(
        (
            f"{row.instances} × {row.machine.name}", str(row.vcpus), f"{row.memory_bytes / 2**30:g}",
            f"{row.gpu_memory_bytes / 2**30:g}", f"{row.printed_per_year:,.2f}", f"{row.per_year:,.2f}",
        )
        for row in price_table()
    )  # fmt: skip
    return GivenTable("Prices of August 2017", header, rows)
