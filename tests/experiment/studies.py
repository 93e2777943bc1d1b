"""Small experiments, and their results without what another execution would have differently."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from paceline.experiment.experiment import Experiment

SMALL = {"network": "dnn", "data": "digits:100", "epochs": 1, "batch": 50, "dropout": 0.0}
TIMES = {
    "wall_s", "train_s", "epoch_s", "samples_per_s", "process_s", "cpu_s", "peak_memory_bytes", "started",
}  # fmt: skip


def small(**changes: Any) -> Experiment:
    given: dict[str, Any] = {"name": "small", "workload": SMALL, "grid": ({"lr": [0.01, 0.02]},), **changes}
    return Experiment(**given)


def virtual(**changes: Any) -> Experiment:
    """Two strategies, each with two numbers of workers; every figure but times repeats."""
    strategy = {"driver": "virtual", "compute-time": "gamma:100:0.01"}
    grid = ({"strategy": ["sync", "downpour"], "workers": [1, 2]},)
    return small(**{"strategy": strategy, "grid": grid, "repetitions": 2, **changes})


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def without_times(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key not in TIMES} for row in rows]
