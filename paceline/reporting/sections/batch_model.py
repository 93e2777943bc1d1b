"""What a batch costs besides its samples, fitted to runs that differ in their batch size (`cost.two_parameter`)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from paceline.cost.two_parameter import Observation, SampleCounts, TwoParameters, fit
from paceline.formatting import duration, percent
from paceline.reporting.figure import Cell, Column, Figure, Section, TableBlock, View, table
from paceline.reporting.sections.by_setting import Line, epoch_s, lines_against
from paceline.results.run_result import RunResult

BATCH = "batch"


@dataclass(frozen=True)
class FittedLine:
    """Runs that differ in their batch size, and the model of their training time an epoch."""

    line: Line
    model: TwoParameters
    observed: tuple[Observation, ...]

    @property
    def name(self) -> str:
        return self.line.name or self.line.first.settings["network"]


def fitted_lines(runs: Sequence[RunResult]) -> list[FittedLine]:
    """Of trainings on a real clock, finished, with at least three batch sizes."""
    usable = [run for run in runs if not run.virtual and run.status == "finished" and run.curve and run.seconds > 0]
    found = []
    for line in lines_against(usable, BATCH):
        observed = [(level.at, level.middle(epoch_s)) for level in line.levels]
        samples = min(samples_an_epoch(run) for level in line.levels for run in level.runs)
        model = fit(observed, SampleCounts(samples, 0, line.first.workers))
        found.append(FittedLine(line, model, tuple(observed)))
    return found


def samples_an_epoch(run: RunResult) -> int:
    """Those that were trained on; of one process as many as its batches hold, the last of which may not be full."""
    told = sum(w.samples for w in run.distribution.by_worker) if run.distribution is not None else 0
    return round((told or run.updates * int(run.settings[BATCH])) / len(run.curve))


def batch_model(runs: Sequence[RunResult]) -> Section | None:
    fitted = fitted_lines(runs)
    if not fitted:
        return None
    dearest = max(fitted, key=lambda f: f.model.communication_share(f.observed[0][0]))
    sentences = (
        model_sentence(dearest),
        "An epoch takes (samples / batch) · t_g + (samples / devices) · t_s: t_g is what every batch costs whatever "
        "its size (gathering gradients, sending parameters, launching), t_s what a sample costs. Both are fitted to "
        "the training time of an epoch, without tests.",
    )
    blocks = (_times(fitted), _shares(fitted), _parameters(fitted))
    return Section("batch-model", "What every batch costs", sentences, blocks=blocks)


def model_sentence(f: FittedLine) -> str:
    small, large = f.observed[0][0], f.observed[-1][0]
    if not f.model.batch_s > 0:
        return "In no line does an epoch get shorter with larger batches: what a batch costs cannot be told from them."
    return (
        f"Every batch of {f.name} costs {duration(f.model.batch_s)}, besides {duration(f.model.sample_s)} for each of "
        f"its samples: that is {percent(f.model.communication_share(small), 1)} of the time at batch {small:g} and "
        f"{percent(f.model.communication_share(large), 1)} at {large:g}."
    )


def _times(fitted: Sequence[FittedLine]) -> Figure:
    rows: list[tuple[Cell, ...]] = []
    styles: dict[str, list[int]] = {}
    for place, f in enumerate(fitted):
        names = f"{f.name}, measured", f"{f.name}, model"
        styles |= {name: [place, dash] for dash, name in enumerate(names)}
        rows += [(names[0], batch, seconds) for batch, seconds in f.observed]
        rows += [(names[1], batch, f.model.time_s(batch)) for batch, _ in f.observed]
    data = table(("line", Column("batch size"), Column("time of an epoch", "s")), rows)
    options = {
        "line": "line", "group": "line", "x": "batch size", "y": "time of an epoch", "whole": True, "both": True,
        "zero": True, "styles": styles,
    }  # fmt: skip
    worst = max(abs(_error(f, *seen)) for f in fitted for seen in f.observed)
    says = f"The model is off by {percent(worst, 0)} at most."
    title = "Time of an epoch, measured and by the model"
    return Figure("batch-model-times", title, "lines", (View("", data, options),), says, says)


def _error(f: FittedLine, batch: float, seconds: float) -> float:
    return f.model.time_s(batch) / seconds - 1.0 if seconds > 0 else math.nan


def _shares(fitted: Sequence[FittedLine]) -> Figure:
    rows = [
        (f.name, batch, 100 * f.model.communication_share(batch), f.model.communication_s(batch))
        for f in fitted
        for batch, _ in f.observed
    ]
    columns = ("line", Column("batch size"), Column("share", "%"), Column("seconds an epoch", "s"))
    options = {"line": "line", "group": "line", "x": "batch size", "y": "share", "whole": True, "zero": True}
    title = "Share of the time that batches cost besides their samples"
    return Figure("batch-model-shares", title, "lines", (View("", table(columns, rows), options),), says=title + ".")


def _parameters(fitted: Sequence[FittedLine]) -> TableBlock:
    columns = (
        "runs", "devices", "samples", Column("t_g, a batch", "ms"), Column("t_s, a sample", "µs"),
        Column("share, smallest batch", "%"), Column("largest batch", "%"), Column("off by", "%"),
    )  # fmt: skip
    rows = [
        (
            f.name, f.model.samples.devices, f.model.samples.train, 1e3 * f.model.batch_s, 1e6 * f.model.sample_s,
            100 * f.model.communication_share(f.observed[0][0]), 100 * f.model.communication_share(f.observed[-1][0]),
            100 * max(abs(_error(f, *seen)) for seen in f.observed),
        )
        for f in fitted
    ]  # fmt: skip
    note = "Share: of an epoch's time, what its batches cost besides their samples. Off by: at the worst batch size."
    return TableBlock("batch-model-parameters", "Fitted parameters", table(columns, rows), note)
