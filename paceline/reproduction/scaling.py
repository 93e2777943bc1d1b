"""Scaling: what doubling the devices saves, beside the gains that a guide gives for five frameworks."""

from __future__ import annotations

import math
from pathlib import Path

from paceline.formatting import duration, listed, middle, percent
from paceline.reporting.reaching import target_loss
from paceline.reporting.sections.doubling import UNIT, an_epoch, savings, to_loss
from paceline.reporting.sections.scaling_lines import Line, scaling_lines
from paceline.reproduction.study import Beside
from paceline.results.comparison_rows import Finding, PublishedRow
from paceline.results.records import find_records
from paceline.results.run_result import run_results
from paceline.results.table import ResultsTable

QUICK = "This is the quick version: 6,400 images instead of 50,000, once instead of three times."
SOURCE = "a guide of 2018"
SAVED = {"CNTK and MXNet": 35.0, "Caffe": 28.0, "Torch and TensorFlow": 10.0}
FEW = 4
"""Devices, as one machine has them: what the frameworks were compared with."""


def beside(found: ResultsTable, directory: Path) -> Beside:
    runs = run_results(find_records([directory]))
    lines = {line.name: line for line in scaling_lines(runs)}
    ours = math.nan
    if sync := lines.get("sync"):
        ours = 100 * middle(share for n, share in savings(sync, an_epoch) if n <= FEW)
    made = Beside()
    made.published = [
        PublishedRow(f"doubling the devices with {name}", saved, ours, UNIT, SOURCE, line=name)
        for name, saved in SAVED.items()
    ]
    loss = target_loss([run for line in lines.values() for level in line.levels for run in level.runs])
    made.findings = [
        Finding(sentence, figure)
        for sentence, figure in (
            (_soonest(list(lines.values()), loss), "time-to-loss"),
            (_doubling(list(lines.values()), ours), "doubling"),
        )
        if sentence
    ]
    return made


def _soonest(lines: list[Line], loss: float) -> str:
    """Who is first at the loss, with many devices and with few."""
    said = []
    numbers = sorted({level.workers for line in lines for level in line.levels}, reverse=True)
    for workers in [number for number in numbers if number in (8, numbers[0])]:
        times = {line.name: to_loss(loss)(level) for line in lines for level in line.levels if level.workers == workers}
        reached = sorted((seconds, name) for name, seconds in times.items() if math.isfinite(seconds))
        never = [name for name, seconds in times.items() if not math.isfinite(seconds)]
        order = [f"{name} takes {duration(seconds)}" for seconds, name in reached] + [f"{n} never comes" for n in never]
        said.append(f"with {workers} {listed(order)}")
    return f"To a test loss of {loss:.2g} on simulated devices: {'; '.join(said)}." if said else ""


def _doubling(lines: list[Line], few: float) -> str:
    ends = [(line.name, savings(line, an_epoch)[-1]) for line in lines if savings(line, an_epoch)]
    if not ends or math.isnan(few):
        return ""
    most = ends[0][1][0]
    last = listed(f"{name} {percent(share, 0)}" for name, (_, share) in ends)
    return (
        f"Doubling the devices saves {few:.0f} % of an epoch's time up to {FEW} of them with sync (published: 35, 28 "
        f"and 10 %), and from {most // 2} to {most}: {last}."
    )
