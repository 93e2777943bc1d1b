"""Dropout: what it does to the time of an epoch and to the accuracy."""

from __future__ import annotations

import math
from pathlib import Path

from paceline.formatting import listed, percent
from paceline.reproduction.study import Beside
from paceline.results.comparison_rows import Finding
from paceline.results.table import ResultsTable

QUICK = (
    "This is the quick version: 3 epochs of 6,000 images instead of 10 of 50,000, two repetitions and three values. "
    "With so few epochs nothing is learnt by heart yet, and dropout has nothing to prevent."
)


def beside(found: ResultsTable, directory: Path) -> Beside:
    time, accuracy = [], []
    for network in dict.fromkeys(row["network"] for row in found.summary):
        rows = sorted((row for row in found.summary if row["network"] == network), key=lambda row: row["dropout"])
        rows = [row for row in rows if math.isfinite(row.get("train_s_mean", math.nan))]
        if len(rows) < 2:
            continue
        without, half = rows[0], min(rows, key=lambda row: abs(row["dropout"] - 0.5))
        best = max(rows, key=lambda row: row["test_accuracy_mean"])
        change = half["train_s_mean"] / without["train_s_mean"] - 1
        time.append(f"{network} {100 * change:+.0f} %")
        reached = percent(best["test_accuracy_mean"], 1)
        if best is without:
            accuracy.append(f"{network} without any ({reached})")
        else:
            accuracy.append(
                f"{network} at {best['dropout']:g} ({reached}; {percent(without['test_accuracy_mean'], 1)} without)"
            )
    made = Beside()
    if time:
        made.findings = [
            Finding(f"A dropout of 0.5 changes the time of training by: {listed(time)}.", "taken-by-dropout"),
            Finding(f"Test accuracy is highest with {listed(accuracy)}.", "learnt-by-dropout"),
        ]
    return made
