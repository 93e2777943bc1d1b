"""Elgato: the communication model of two devices as printed, solved exactly, and fitted to our times."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import torch

from paceline.cost.two_parameter import PUBLISHED, SampleCounts, TwoParameters, solve
from paceline.experiment.experiment import Experiment
from paceline.formatting import listed, median_of, percent
from paceline.reporting.sections.batch_model import FittedSeries, fit_batch_models
from paceline.reproduction.study import Conclusions
from paceline.results.comparison_rows import ExtraTable, Finding, PublishedRow
from paceline.results.labels import grouped
from paceline.results.noise import unrepeated
from paceline.results.records import find_records
from paceline.results.run_result import run_results
from paceline.results.table import ResultsTable
from paceline.step.build import assemble, load_data
from paceline.training.placement_log import count_operations
from paceline.workload import Workload

WHOLE = SampleCounts(50_000, 10_000, 2)  # of a pass in the publication, with two devices
TOWERS = 2
WHAT = {
    "time": ("time", "s per pass"), "t_g": ("t_g, per batch", "ms"), "t_s": ("t_s, per sample", "µs"),
    "communication_s": ("communication", "s per pass of communication"),
    "communication": ("communication", "% of the time"),
}  # fmt: skip
"""Name and unit of each quantity."""
LSTM_OBSERVED_S = {2000: 110.0}  # mentioned with the share of communication
COMMUNICATION_S = {"mlp": {100: 57.5, 2000: 2.85}, "lstm": {2000: 15.25}}
"""As printed; the value at batch size 100 was computed with 0.115 s per batch instead of 0.114."""
OPERATIONS = {"CPU:0": 1855, "each GPU": 2373}  # of the LSTM's graph, by device


def adapted(experiment: Experiment) -> Experiment:
    """Without a GPU no device is named; with one, it is also run by itself, without towers."""
    if not torch.cuda.is_available():
        grid = ({key: each for key, each in block.items() if key != "device"} for block in experiment.grid)
        return replace(experiment, grid=tuple(grid))
    alone = tuple({**block, "device": ["auto"]} for block in experiment.grid if block["strategy"] == ["none"])
    return replace(experiment, grid=(*experiment.grid, *alone))


def conclude(found: ResultsTable, directory: Path) -> Conclusions:
    fitted = {
        one.series.first.settings["network"]: one
        for one in fit_batch_models(run_results(find_records([directory])))
        if one.series.first.workers == TOWERS
    }
    models = {name: replace(one.model, samples=WHOLE) for name, one in fitted.items() if one.is_fitted}
    findings = [one for name in models for one in _overhead(name, fitted[name])]
    if unknown := [name for name in fitted if name not in models]:
        times = f"The epoch times of {listed(unknown)} with two processes"
        sentence = f"{times} do not fit the time model: there is no estimate of the overhead per batch."
        findings.append(Finding(sentence, "batch-model-times"))
    return Conclusions(
        findings=[*findings, *(Finding(sentence, "learned-by-batch") for sentence in _accuracies(found))],
        published=[row for name in PUBLISHED for row in _published(name, models.get(name))],
        tables=[_operations()],
    )


def _published(network: str, model: TwoParameters | None) -> list[PublishedRow]:
    """All printed numbers, those that follow exactly from the observed times, and ours."""
    rows = []
    for what, batch, theirs, how in [*_printed(network), *(_solved() if network == "mlp" else [])]:
        ours = math.nan if model is None else _value(model, what, batch)
        name, unit = WHAT[what]
        name += f" at batch size {batch}" if batch else ""
        row = PublishedRow(f"{network}, {name}, {how}", theirs, ours, unit)
        if what == "time":
            line, our_line = f"{network}, two GPUs, {how}", f"{network}, two towers here"
            row = replace(row, along="batch size", at=batch, line=line, our_line=our_line)
        rows.append(row)
    return rows


Quantity = tuple[str, int, float, str]  # quantity, batch size or 0, value, origin


def _printed(network: str) -> list[Quantity]:
    printed = PUBLISHED[network]
    observed = printed.observed_s or LSTM_OBSERVED_S
    return [
        *(("time", batch, seconds, "observed") for batch, seconds in observed.items()),
        *(("time", batch, seconds, "predicted") for batch, seconds in printed.predicted_s.items()),
        ("t_g", 0, 1e3 * printed.batch_s, "as printed"),
        ("t_s", 0, 1e6 * printed.sample_s, "as printed"),
        *(("communication_s", batch, seconds, "as printed") for batch, seconds in COMMUNICATION_S[network].items()),
        *(("communication", batch, 100 * share, "as printed") for batch, share in printed.communication_share.items()),
    ]


def _solved() -> list[Quantity]:
    """From the two times that the study observed."""
    first, second = PUBLISHED["mlp"].observed_s.items()
    exact = solve(first, second, WHOLE)
    asked = ((what, batch) for what, batch, _, how in _printed("mlp") if how != "observed")
    return [(what, batch, _value(exact, what, batch), "solved exactly") for what, batch in asked]


def _value(model: TwoParameters, what: str, batch: int) -> float:
    if not batch:
        return 1e3 * model.batch_s if what == "t_g" else 1e6 * model.sample_s
    share = 100 * model.communication_share(batch)
    return {"time": model.time_s(batch), "communication_s": model.communication_s(batch), "communication": share}[what]


def _overhead(network: str, found: FittedSeries) -> list[Finding]:
    """The share of communication, here and as published."""
    printed = PUBLISHED[network].communication_share
    theirs = listed(f"{percent(share)} at {batch}" for batch, share in printed.items())
    ours = (
        f"With two processes, overhead per batch is {percent(found.share(0))} of the epoch time of {network} at "
        f"batch size {found.observed[0][0]:g}, {percent(found.share(-1))} at {found.observed[-1][0]:g}."
    )
    sentences = (ours, f"On two GPUs, Liang reports {theirs} for {network}.")
    return [Finding(sentence, "batch-model-shares") for sentence in sentences]


def _accuracies(found: ResultsTable) -> list[str]:
    """Whether larger batches reach less accuracy, and whether one tower equals one process."""
    known = [row for row in found.rows if row["status"] == "finished" and row.get("test_accuracy") is not None]
    rows = grouped(known, lambda row: (row["network"], row.get("strategy"), row["workers"], row["batch"]))
    values = {key: [row["test_accuracy"] for row in some] for key, some in rows.items()}
    said = []
    small, large = (values.get(("mlp", "towers", TOWERS, batch), []) for batch in (100, 2000))
    if small and large:
        ends = f"{percent(median_of(small))} at batch size 100 and {percent(median_of(large))} at 2000"
        said.append(f"The test accuracy of mlp with two processes is {ends}{unrepeated(small, large)}.")
    apart = [
        abs(median_of(one) - median_of(other))
        for (network, strategy, workers, batch), one in values.items()
        if strategy == "towers" and workers == 1 and (other := values.get((network, None, 1, batch)))
    ]
    if apart:
        said.append(f"One tower and one process end at most {100 * max(apart):.1f} percentage points apart.")
    return said


def _operations() -> ExtraTable:
    """Where the LSTM's operations run: of the whole graph in the publication, of one step here."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    workload = Workload(network="lstm", data="synthetic:1x28x28/10:100", batch=100)
    parts = assemble(workload, load_data(workload), device)
    try:
        ours = count_operations(parts)
    finally:
        parts.feeder.close()
    rows = [(f"{place}, published", f"{many}", "") for place, many in OPERATIONS.items()]
    rows += [(f"{place}, here", "", f"{many}") for place, many in sorted(ours.items())]
    header = ("device", "operations per graph", "operations per step")
    return ExtraTable("Operations of lstm by device", header, tuple(rows))
