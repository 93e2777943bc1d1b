"""Elgato: the communication model, as it was printed, solved exactly, and fitted to our times."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import torch

from paceline.cost.two_parameter import PUBLISHED, Samples, TwoParameters, solve
from paceline.experiment.collecting import Collection
from paceline.experiment.experiment import Experiment
from paceline.experiment.studies.study import Beside
from paceline.report.given_rows import Finding, GivenTable, Published
from paceline.report.reading import read
from paceline.report.sections.batch_model import fitted_lines
from paceline.report.shown_run import shown_runs
from paceline.report.words import duration, listed, percent

QUICK = "This is the quick version: 3 epochs of 6,000 images instead of 20 of 50,000, and one thread a process."
SOURCE = "Elgato, 2017"
WHOLE = Samples(50_000, 10_000, 2)
"""What was gone through there, by two devices."""
TOWERS = 2
WHAT = {
    "time": ("time", "s a pass"), "t_g": ("t_g, of a batch", "ms"), "t_s": ("t_s, of a sample", "µs"),
    "communication": ("communication", "% of the time"),
}  # fmt: skip
"""Words and unit of each quantity."""


def adapted(experiment: Experiment) -> Experiment:
    """Without a GPU a device need not be named; with one, it is also tried by itself, without towers."""
    if not torch.cuda.is_available():
        return replace(experiment, grid=tuple(_without_device(block) for block in experiment.grid))
    alone = tuple({**block, "device": ["auto"]} for block in experiment.grid if block["strategy"] == ["none"])
    return replace(experiment, grid=(*experiment.grid, *alone))


def _without_device(block: dict[str, list[object]]) -> dict[str, list[object]]:
    return {key: values for key, values in block.items() if key != "device"}


def beside(found: Collection, directory: Path) -> Beside:
    lines = [f for f in fitted_lines(shown_runs(read([directory]))) if f.line.first.workers == TOWERS]
    ours = {f.line.first.settings["network"]: f for f in lines}
    models = {name: TwoParameters(f.model.batch_s, f.model.sample_s, WHOLE) for name, f in ours.items()}
    made = Beside(published=[row for name in PUBLISHED for row in _published(name, models.get(name))])
    made.findings = [Finding(said, figure) for said, figure in _findings(found, models)]
    made.tables = [_table(models)]
    return made


def _exact() -> TwoParameters:
    """From the two times that the study observed."""
    (first, second) = PUBLISHED["mlp"].observed_s.items()
    return solve(first, second, WHOLE)


def _published(network: str, model: TwoParameters | None) -> list[Published]:
    """Every figure that was printed, those that follow exactly from what was observed, and ours beside each."""
    rows = []
    for what, batch, theirs, how in [*_printed(network), *(_solved() if network == "mlp" else [])]:
        label, unit = WHAT[what]
        at = f" at batch {batch}" if batch else ""
        ours = math.nan if model is None else _value(model, what, batch)
        row = Published(f"{network}, {label}{at}, {how}", theirs, ours, unit, SOURCE)
        if what == "time":
            line, our_line = f"{network}, two GPUs, {how}", f"{network}, two towers here"
            row = replace(row, along="batch size", at=batch, line=line, our_line=our_line)
        rows.append(row)
    return rows


Quantity = tuple[str, int, float, str]
"""What it is, its batch size or 0, its value, and where that is from."""


def _printed(network: str) -> list[Quantity]:
    printed = PUBLISHED[network]
    return [
        *(("time", batch, seconds, "observed") for batch, seconds in printed.observed_s.items()),
        *(("time", batch, seconds, "predicted") for batch, seconds in printed.predicted_s.items()),
        ("t_g", 0, 1e3 * printed.batch_s, "as printed"),
        ("t_s", 0, 1e6 * printed.sample_s, "as printed"),
        *(("communication", batch, 100 * share, "as printed") for batch, share in printed.communication_share.items()),
    ]


def _solved() -> list[Quantity]:
    exact, printed = _exact(), PUBLISHED["mlp"]
    asked = [*(("time", batch) for batch in printed.predicted_s), ("t_g", 0), ("t_s", 0)]
    asked += [("communication", batch) for batch in printed.communication_share]
    return [(what, batch, _value(exact, what, batch), "solved exactly") for what, batch in asked]


def _value(model: TwoParameters, what: str, batch: int) -> float:
    if what == "time":
        return model.time_s(batch)
    if what == "communication":
        return 100 * model.communication_share(batch)
    return 1e3 * model.batch_s if what == "t_g" else 1e6 * model.sample_s


def _findings(found: Collection, models: dict[str, TwoParameters]) -> list[tuple[str, str]]:
    said = []
    for network in [name for name in PUBLISHED if name in models]:
        model, printed = models[network], PUBLISHED[network]
        shares = listed(
            f"{percent(model.communication_share(batch), 1)} at batch {batch} ({percent(share, 1)} published)"
            for batch, share in printed.communication_share.items()
        )
        said.append((
            f"Of the time of {network} with two towers, what each batch costs besides its samples is {shares}: "
            f"{duration(model.batch_s)} a batch ({duration(printed.batch_s)} published).",
            "batch-model-shares",
        ))  # fmt: skip
    if accuracy := _accuracies(found):
        said.append((accuracy, "learnt-by-batch"))
    return said


def _accuracies(found: Collection) -> str:
    """Whether larger batches learn less, and whether one tower is what one process is."""
    told = {
        (row["network"], row.get("strategy"), row["workers"], row["batch"]): row.get("test_accuracy_mean")
        for row in found.summary
    }
    ends = [told.get(("mlp", "towers", TOWERS, batch)) for batch in (100, 2000)]
    if None in ends:
        return ""
    said = f"Larger batches learn less: with mlp and two towers, {percent(ends[0] or 0, 1)} test accuracy at batch 100 "
    said += f"and {percent(ends[1] or 0, 1)} at 2000"
    pairs = [
        (value, told.get((network, "none", 1, batch)))
        for (network, strategy, workers, batch), value in told.items()
        if strategy == "towers" and workers == 1
    ]
    apart = [abs(a - b) for a, b in pairs if a is not None and b is not None]
    if apart:
        said += f"; one tower and one process end at most {100 * max(apart):.1f} percentage points apart"
    return f"{said}."


def _table(models: dict[str, TwoParameters]) -> GivenTable:
    printed, exact = PUBLISHED["mlp"], _exact()
    rows: list[tuple[str | float | None, ...]] = [
        ("t_g, s a batch", printed.batch_s, exact.batch_s, *(m.batch_s for m in models.values())),
        ("t_s, s a sample", printed.sample_s, exact.sample_s, *(m.sample_s for m in models.values())),
    ]
    for b in (100, 500, 1000, 2000):
        theirs = printed.observed_s.get(b, printed.predicted_s.get(b))
        rows.append((f"T({b}), s", theirs, exact.time_s(b), *(m.time_s(b) for m in models.values())))
    for b, share in printed.communication_share.items():
        both = [100 * m.communication_share(b) for m in (exact, *models.values())]
        rows.append((f"communication at {b}, %", 100 * share, *both))
    header = ("of two devices", "mlp, as printed", "mlp, solved exactly", *(f"{name}, ours" for name in models))
    return GivenTable("The communication model", header, tuple(tuple(_said(cell) for cell in row) for row in rows))


def _said(cell: float | str | None) -> str:
    return "" if cell is None else cell if isinstance(cell, str) else f"{cell:.5g}"
