"""Dropout: its effect on training time and accuracy."""

from __future__ import annotations

from pathlib import Path

from paceline.formatting import listed, median_of, percent
from paceline.reproduction.study import Conclusions
from paceline.results.comparison_rows import Finding
from paceline.results.noise import differs
from paceline.results.table import ResultsTable

HALF = 0.5
Values = dict[float, list[float]]
"""Of the repetitions, by dropout."""


def conclude(found: ResultsTable, directory: Path) -> Conclusions:
    time: list[str] = []
    learned: list[str] = []
    for network in dict.fromkeys(row["network"] for row in found.rows):
        seconds, accuracy = _values(found, network, "train_s"), _values(found, network, "test_accuracy")
        if len(seconds) < 2 or 0.0 not in seconds:
            continue
        half = min(seconds, key=lambda rate: abs(rate - HALF))
        change = median_of(seconds[half]) / median_of(seconds[0.0]) - 1
        took = f"takes {percent(abs(change), 0)} {'longer' if change > 0 else 'less time'}"
        longer = _unless_noise(took, seconds[0.0], seconds[half])
        time.append(f"{network} {longer or 'trains equally fast within noise'}")
        best = max(accuracy, key=lambda rate: median_of(accuracy[rate]))
        ends = (
            f"{percent(median_of(accuracy[best]))} with dropout {best:g}, {percent(median_of(accuracy[0.0]))} without"
        )
        better = _unless_noise(f"reaches {ends}", accuracy[0.0], accuracy[best])
        learned.append(f"{network} {better or 'stays the same within noise'}")
    said = {
        f"With a dropout of 0.5, {listed(time)}.": "time-by-dropout",
        f"In test accuracy, {listed(learned)}.": "learned-by-dropout",
    }
    return Conclusions(findings=[Finding(*one) for one in said.items()] if time else [])


def _unless_noise(change: str, without: list[float], with_it: list[float]) -> str:
    apart = differs(without, with_it)
    return "" if apart is False or without is with_it else f"{change}{' (one run)' * (apart is None)}"


def _values(found: ResultsTable, network: str, metric: str) -> Values:
    values: Values = {}
    for row in found.rows:
        if row["network"] == network and row["status"] == "finished":
            values.setdefault(float(row["dropout"]), []).append(float(row[metric]))
    return dict(sorted(values.items()))
