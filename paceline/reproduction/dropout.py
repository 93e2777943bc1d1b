"""Dropout: its effect on training time and accuracy."""

from __future__ import annotations

from pathlib import Path

from paceline.formatting import listed, median_of, percent, signed_percent
from paceline.reproduction.study import Conclusions
from paceline.results.comparison_rows import Finding
from paceline.results.labels import grouped
from paceline.results.noise import differs
from paceline.results.table import ResultsTable

HALF = 0.5
Values = dict[float, list[float]]  # of the repetitions, by dropout rate


def conclude(found: ResultsTable, directory: Path) -> Conclusions:
    time: dict[str, str] = {}
    accuracy: dict[str, str] = {}
    for network in dict.fromkeys(row["network"] for row in found.rows):
        seconds, reached = _values(found, network, "train_s"), _values(found, network, "test_accuracy")
        if len(seconds) < 2 or 0.0 not in seconds:
            continue
        half = min(seconds, key=lambda rate: abs(rate - HALF))
        change = signed_percent(median_of(seconds[half]) / median_of(seconds[0.0]) - 1, 0)
        time[network] = _unless_noise(f"by {change}", seconds[0.0], seconds[half])
        ends = [percent(median_of(reached[rate])) for rate in (0.0, half)]
        accuracy[network] = _unless_noise(f"from {ends[0]} to {ends[1]}", reached[0.0], reached[half])
    said = {
        _changes(f"A dropout of {HALF}", "training time", time): "time-by-dropout",
        _changes(f"A dropout of {HALF}", "test accuracy", accuracy): "learned-by-dropout",
    }
    return Conclusions(findings=[Finding(*one) for one in said.items()] if time else [])


def _unless_noise(change: str, without: list[float], with_it: list[float]) -> str:
    apart = differs(without, with_it)
    return "" if apart is False else f"{change}{' (one run)' * (apart is None)}"


def _changes(who: str, what: str, found: dict[str, str]) -> str:
    """What changes for which networks; the others stay within noise."""
    said = [f"of {network} {change}" for network, change in found.items() if change]
    if not said:
        return f"{who} does not change the {what} of {listed(found)} beyond noise."
    same = [network for network, change in found.items() if not change]
    return f"{who} changes the {what} {listed(said)}" + (
        f"; {listed(same)} stay{'s' * (len(same) == 1)} within noise." if same else "."
    )


def _values(found: ResultsTable, network: str, metric: str) -> Values:
    rows = [row for row in found.rows if row["network"] == network and row["status"] == "finished"]
    by_rate = grouped(rows, lambda row: float(row["dropout"]))
    return {rate: [float(row[metric]) for row in some] for rate, some in sorted(by_rate.items())}
