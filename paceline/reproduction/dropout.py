"""Dropout: its effect on training time and accuracy."""

from __future__ import annotations

from pathlib import Path

from paceline.formatting import listed, median_of, percent, signed_percent
from paceline.reproduction.study import Conclusions
from paceline.results.comparison_rows import Finding
from paceline.results.noise import differs
from paceline.results.table import ResultsTable

QUICK = (
    "This is the quick version: 3 epochs of 6,000 images instead of 10 of 50,000, two repetitions and three values. "
    "In so few epochs the networks do not overfit yet, so dropout has nothing to prevent."
)
HALF = 0.5
Values = dict[float, list[float]]
"""Of the repetitions, by dropout."""


def conclude(found: ResultsTable, directory: Path) -> Conclusions:
    slower, same, better, equal = [], [], [], []
    for network in dict.fromkeys(row["network"] for row in found.rows):
        seconds, accuracy = _values(found, network, "train_s"), _values(found, network, "test_accuracy")
        if len(seconds) < 2 or 0.0 not in seconds:
            continue
        half = min(seconds, key=lambda rate: abs(rate - HALF))
        if differs(seconds[0.0], seconds[half]) is False:
            same.append(network)
        else:
            change = median_of(seconds[half]) / median_of(seconds[0.0]) - 1
            once = " in one run each" * (differs(seconds[0.0], seconds[half]) is None)
            slower.append(f"{network} by {signed_percent(change, 0)}{once}")
        best = max(accuracy, key=lambda rate: median_of(accuracy[rate]))
        if best and differs(accuracy[0.0], accuracy[best]) is not False:
            gain = f"{percent(median_of(accuracy[best]))} instead of {percent(median_of(accuracy[0.0]))}"
            better.append(f"{network} at dropout {best:g} ({gain})")
        else:
            equal.append(network)
    said = []
    if slower:
        said.append((f"A dropout of 0.5 changes the training time of {listed(slower)}.", "time-by-dropout"))
    if same:
        said.append(
            (f"A dropout of 0.5 does not change the training time of {listed(same)} beyond noise.", "time-by-dropout")
        )
    if better:
        said.append((f"Dropout improves the test accuracy of {listed(better)}.", "learned-by-dropout"))
    if equal:
        said.append(
            (f"Dropout does not improve the test accuracy of {listed(equal)} beyond noise.", "learned-by-dropout")
        )
    return Conclusions(findings=[Finding(*one) for one in said])


def _values(found: ResultsTable, network: str, metric: str) -> Values:
    values: Values = {}
    for row in found.rows:
        if row["network"] == network and row["status"] == "finished":
            values.setdefault(float(row["dropout"]), []).append(float(row[metric]))
    return dict(sorted(values.items()))
