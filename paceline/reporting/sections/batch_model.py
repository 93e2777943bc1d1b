"""Overhead per batch, fitted to runs that differ in their batch size (`cost.two_parameter`)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from paceline.cost.two_parameter import Observation, SampleCounts, TwoParameters, fit
from paceline.formatting import duration, listed, percent
from paceline.reporting.colours import line_styles
from paceline.reporting.figure import Cell, Column, Figure, Section, TableBlock, View, section, table
from paceline.reporting.series import Series, epoch_s, series_by
from paceline.results.run_result import RunResult

BATCH = "batch"
WORST_FIT = 0.2  # largest error, as a share of the epoch time, at which the model counts as fitted
MODEL = (
    "The model: epoch time = (samples / batch size) · t_g + (samples / devices) · t_s. t_g is the overhead per batch, "
    "whatever its size (gathering gradients, sending parameters, launching kernels); t_s is the time per sample. Both "
    "are fitted to the training time per epoch, without validation."
)


@dataclass(frozen=True)
class FittedSeries:
    """Runs that differ in their batch size, and the model of their epoch time."""

    series: Series
    model: TwoParameters
    observed: tuple[Observation, ...]

    @property
    def name(self) -> str:
        return self.series.name or self.series.first.settings["network"]

    @property
    def is_fitted(self) -> bool:
        """Whether both parameters are positive and the model is close to the measured times."""
        return self.model.batch_s > 0 and self.model.sample_s > 0 and self.error <= WORST_FIT

    def share(self, place: int) -> float:
        """The share of the epoch time that is overhead, at one of the batch sizes."""
        return self.model.communication_share(self.observed[place][0]) if self.is_fitted else math.nan

    @property
    def error(self) -> float:
        """The largest error, as a share of the measured time."""
        errors = (abs(self.model.time_s(batch) / seconds - 1.0) for batch, seconds in self.observed if seconds > 0)
        return max(errors, default=math.inf)


def fit_batch_models(runs: Sequence[RunResult]) -> list[FittedSeries]:
    """Fits measured, finished trainings with at least three batch sizes."""
    usable = [run for run in runs if not run.virtual and run.status == "finished" and run.curve and run.seconds > 0]
    found = []
    for series in series_by(usable, BATCH):
        observed = [(point.at, point.median(epoch_s)) for point in series.points]
        samples = min(samples_per_epoch(run) for point in series.points for run in point.runs)
        model = fit(observed, SampleCounts(samples, 0, series.first.workers))
        found.append(FittedSeries(series, model, tuple(observed)))
    return found


def samples_per_epoch(run: RunResult) -> int:
    """In one process, estimated from full batches; the last one may be smaller."""
    told = sum(w.samples for w in run.distribution.by_worker) if run.distribution is not None else 0
    return round((told or run.updates * int(run.settings[BATCH])) / len(run.curve))


def batch_model(runs: Sequence[RunResult]) -> Section | None:
    models = fit_batch_models(runs)
    if not models:
        return None
    fitted = [model for model in models if model.is_fitted]
    sentences = [overhead_sentence(max(fitted, key=lambda model: model.share(0)))] if fitted else []
    if failed := [model.name for model in models if not model.is_fitted]:
        times = f"The epoch times of {listed(failed)}"
        sentences.append(f"{times} do not fit the time model: there is no estimate of the overhead.")
    blocks = (_times(models), _shares(fitted) if fitted else None, _parameters(models))
    return section("batch-model", "Overhead per batch", (*sentences, MODEL), blocks=blocks)


def overhead_sentence(found: FittedSeries) -> str:
    small, large = found.observed[0][0], found.observed[-1][0]
    return (
        f"With {found.name}, the overhead is {duration(found.model.batch_s)} per batch: {percent(found.share(0))} of "
        f"the epoch time at batch size {small:g}, {percent(found.share(-1))} at {large:g}."
    )


def _times(models: Sequence[FittedSeries]) -> Figure:
    fitted = [found for found in models if found.is_fitted]
    rows: list[tuple[Cell, ...]] = []
    for found in models:
        rows += [(f"{found.name}, measured", batch, seconds) for batch, seconds in found.observed]
        if found.is_fitted:
            rows += [(f"{found.name}, model", batch, found.model.time_s(batch)) for batch, _ in found.observed]
    data = table(("line", Column("batch size"), Column("epoch time", "s")), rows)
    options = {
        "line": "line", "x": "batch size", "y": "epoch time", "whole": True, "both": True, "zero": True,
        "styles": line_styles(data.values("line"), "model"),
    }  # fmt: skip
    off = percent(max((found.error for found in fitted), default=math.nan), 0)
    says = f"The time model is off by {off} at most." if fitted else "These times do not fit the time model."
    return Figure("batch-model-times", "Epoch time by batch size", "lines", (View("", data, options),), says, says)


def _shares(models: Sequence[FittedSeries]) -> Figure:
    rows = [
        (found.name, batch, 100 * found.model.communication_share(batch), found.model.communication_s(batch))
        for found in models
        for batch, _ in found.observed
    ]
    columns = ("line", Column("batch size"), Column("overhead", "%"), Column("overhead per epoch", "s"))
    options = {"line": "line", "x": "batch size", "y": "overhead", "whole": True, "zero": True}
    title = "Overhead per batch as a share of the epoch time"
    whose = f" of {models[0].name}" if len(models) == 1 else ""  # a single line has no legend
    note = f"From the model{whose}, which is off by {percent(max(found.error for found in models), 0)} at most."
    return Figure("batch-model-shares", title, "lines", (View("", table(columns, rows), options),), note=note)


def _parameters(models: Sequence[FittedSeries]) -> TableBlock:
    columns = (
        "runs", "devices", "samples", Column("t_g, per batch", "ms"), Column("t_s, per sample", "µs"),
        Column("overhead at smallest batch", "%"), Column("at largest batch", "%"), Column("largest error", "%"),
    )  # fmt: skip
    rows = [
        (
            found.name, found.model.samples.devices, found.model.samples.train,
            1e3 * found.model.batch_s if found.is_fitted else math.nan,
            1e6 * found.model.sample_s if found.is_fitted else math.nan,
            100 * found.share(0), 100 * found.share(-1), 100 * found.error,
        )
        for found in models
    ]  # fmt: skip
    note = "Empty: the times do not fit the time model, so there is no estimate."
    return TableBlock("batch-model-parameters", "Fitted parameters", table(columns, rows), note)
