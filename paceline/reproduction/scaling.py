"""Scaling: synchronous, asynchronous and mixed training on more and more simulated devices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from paceline.formatting import duration, listed, median_of, percent
from paceline.reporting.sections.scaling import UNIT, per_sample, savings, to_loss
from paceline.reporting.series import Series, series_by_workers, target_loss
from paceline.reproduction.study import Conclusions
from paceline.results.comparison_rows import Finding, PublishedRow
from paceline.results.records import find_records
from paceline.results.run_result import run_results
from paceline.results.table import ResultsTable

SAVED = {"CNTK and MXNet": 35.0, "Caffe": 28.0, "Torch and TensorFlow": 10.0}
FEW = 4  # devices in one machine, as in the published comparison


def conclude(found: ResultsTable, directory: Path) -> Conclusions:
    series = series_by_workers(run_results(find_records([directory])))
    sync = next((one for one in series if one.name == "sync"), None)
    ours = math.nan
    if sync is not None:
        ours = 100 * median_of(share for n, share in savings(sync, per_sample) if n <= FEW)
    loss = target_loss([run for one in series for point in one.points for run in point.runs])
    numbers = sorted({point.workers for one in series for point in one.points})
    said = [(_order(series, loss, n), "time-to-loss") for n in (numbers[-1:] + [n for n in numbers[:-1] if n == 8])]
    said.append((_doubling(series, ours), "doubling"))
    return Conclusions(
        findings=[Finding(*one) for one in said],
        published=[
            PublishedRow(f"doubling the devices with {name}", saved, ours, UNIT, line=name, our_line="ours, simulated")
            for name, saved in SAVED.items()
        ],
    )


def _order(series: Sequence[Series], loss: float, workers: int) -> str:
    """The strategies in the order in which they reach the loss."""
    points = {one.name: point for one in series for point in one.points if point.workers == workers}
    seconds = {name: to_loss(loss)(point) for name, point in points.items()}
    reached = sorted((s, name) for name, s in seconds.items() if math.isfinite(s))
    if not reached:
        return ""
    said = [f"{name} after {duration(s)}" for s, name in reached]
    said[0] = f"{reached[0][1]} reaches a test loss of {loss:.2g} after {duration(reached[0][0])}"
    said += [f"{name} never" for name in seconds if not math.isfinite(seconds[name])]
    once = " (one run each)" if all(len(point.runs) == 1 for point in points.values()) else ""
    return f"On {workers} simulated devices, {', '.join(said)}{once}."


def _doubling(series: Sequence[Series], few: float) -> str:
    ends = [(one.name, savings(one, per_sample)[-1]) for one in series if savings(one, per_sample)]
    if not ends or math.isnan(few):
        return ""
    most = max(n for _, (n, _) in ends)
    last = listed(f"{percent(share, 0)} with {name}" for name, (n, share) in ends if n == most)
    return (
        f"In simulation, doubling up to {FEW} synchronous devices saves {few:.0f} % of the epoch time; Wünsche reports "
        f"35, 28 and 10 % for five frameworks. Doubling from {most // 2} to {most} saves {last}."
    )
