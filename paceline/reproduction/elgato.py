"""Elgato: the communication model, as it was printed, solved exactly, and fitted to our times."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import torch

from paceline.cost.two_parameter import PUBLISHED, SampleCounts, TwoParameters, solve
from paceline.experiment.experiment import Experiment
from paceline.formatting import duration, listed, percent
from paceline.reporting.sections.batch_model import fitted_lines
from paceline.reproduction.study import Beside
from paceline.results.comparison_rows import ExtraTable, Finding, PublishedRow
from paceline.results.records import find_records
from paceline.results.run_result import run_results
from paceline.results.table import ResultsTable
from paceline.step.build import assemble, load_data
from paceline.training.placement_log import count_operations
from paceline.workload import Workload

QUICK = "This is the quick version: 3 epochs of 6,000 images instead of 20 of 50,000, and one thread a process."
SOURCE = "Elgato, 2017"
WHOLE = SampleCounts(50_000, 10_000, 2)
"""What was gone through there, by two devices."""
TOWERS = 2
WHAT = {
    "time": ("time", "s a pass"), "t_g": ("t_g, of a batch", "ms"), "t_s": ("t_s, of a sample", "µs"),
    "communication_s": ("communication", "s of a pass"), "communication": ("communication", "% of the time"),
}  # fmt: skip
"""Words and unit of each quantity."""
ROWS = (
    ("t_g", 0), ("t_s", 0), *(("time", batch) for batch in (100, 500, 1000, 2000)),
    *(("communication", batch) for batch in (100, 2000)),
)  # fmt: skip
"""Of the table of the model: what, and at which batch size."""
LSTM_OBSERVED_S = {2000: 110.0}
"""Told in passing, beside the share of it that is communication."""
COMMUNICATION_S = {"mlp": {100: 57.5, 2000: 2.85}, "lstm": {2000: 15.25}}
"""As printed; at batch 100 worked out with 0.115 s a batch instead of 0.114."""
OPERATIONS = {"CPU:0": 1855, "each GPU": 2373}
"""Of the LSTM's graph, by the device on which they were placed."""


def adapted(experiment: Experiment) -> Experiment:
    """Without a GPU a device need not be named; with one, it is also tried by itself, without towers."""
    if not torch.cuda.is_available():
        return replace(experiment, grid=tuple(_without_device(block) for block in experiment.grid))
    alone = tuple({**block, "device": ["auto"]} for block in experiment.grid if block["strategy"] == ["none"])
    return replace(experiment, grid=(*experiment.grid, *alone))


def _without_device(block: dict[str, list[object]]) -> dict[str, list[object]]:
    return {key: values for key, values in block.items() if key != "device"}


def beside(found: ResultsTable, directory: Path) -> Beside:
    lines = [f for f in fitted_lines(run_results(find_records([directory]))) if f.line.first.workers == TOWERS]
    ours = {f.line.first.settings["network"]: f for f in lines}
    models = {name: TwoParameters(f.model.batch_s, f.model.sample_s, WHOLE) for name, f in ours.items()}
    made = Beside(published=[row for name in PUBLISHED for row in _published(name, models.get(name))])
    made.findings = [Finding(said, figure) for said, figure in _findings(found, models)]
    made.tables = [_table(models), _operations()]
    return made


def _exact() -> TwoParameters:
    """From the two times that the study observed."""
    (first, second) = PUBLISHED["mlp"].observed_s.items()
    return solve(first, second, WHOLE)


def _published(network: str, model: TwoParameters | None) -> list[PublishedRow]:
    """Every figure that was printed, those that follow exactly from what was observed, and ours beside each."""
    rows = []
    for what, batch, theirs, how in [*_printed(network), *(_solved() if network == "mlp" else [])]:
        ours = math.nan if model is None else _value(model, what, batch)
        row = PublishedRow(f"{network}, {_name(what, batch)}, {how}", theirs, ours, WHAT[what][1], SOURCE)
        if what == "time":
            line, our_line = f"{network}, two GPUs, {how}", f"{network}, two towers here"
            row = replace(row, along="batch size", at=batch, line=line, our_line=our_line)
        rows.append(row)
    return rows


def _name(what: str, batch: int) -> str:
    return WHAT[what][0] + (f" at batch {batch}" if batch else "")


Quantity = tuple[str, int, float, str]
"""What it is, its batch size or 0, its value, and where that is from."""


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
    exact, printed = _exact(), PUBLISHED["mlp"]
    asked = [*(("time", batch) for batch in printed.predicted_s), ("t_g", 0), ("t_s", 0)]
    asked += [(what, batch) for what in ("communication_s", "communication") for batch in printed.communication_share]
    return [(what, batch, _value(exact, what, batch), "solved exactly") for what, batch in asked]


def _value(model: TwoParameters, what: str, batch: int) -> float:
    if what == "time":
        return model.time_s(batch)
    if what == "communication_s":
        return model.communication_s(batch)
    if what == "communication":
        return 100 * model.communication_share(batch)
    return 1e3 * model.batch_s if what == "t_g" else 1e6 * model.sample_s


def _findings(found: ResultsTable, models: dict[str, TwoParameters]) -> list[tuple[str, str]]:
    said = []
    for network in [name for name in PUBLISHED if name in models]:
        model, printed = models[network], PUBLISHED[network]
        if not model.batch_s > 0:
            said.append((_nothing_found(network), "batch-model-times"))
            continue
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


def _nothing_found(network: str) -> str:
    printed = PUBLISHED[network].communication_share
    shares = listed(f"{percent(share, 1)} at batch {batch}" for batch, share in printed.items())
    return (
        f"An epoch of {network} with two towers does not get shorter with larger batches here, so that its times do "
        f"not tell what a batch costs besides its samples (published: {shares})."
    )


def _accuracies(found: ResultsTable) -> str:
    """Whether larger batches learn less, and whether one tower is what one process is."""
    told = {
        (row["network"], row.get("strategy"), row["workers"], row["batch"]): row.get("test_accuracy_mean")
        for row in found.summary
    }
    ends = [told.get(("mlp", "towers", TOWERS, batch)) for batch in (100, 2000)]
    if None in ends:
        return ""
    small, large = (value or 0.0 for value in ends)
    said = f"With mlp and two towers, test accuracy is {percent(small, 1)} at batch 100 and {percent(large, 1)} at 2000"
    if large < small:
        said = f"Larger batches learn less: {said[0].lower()}{said[1:]}"
    pairs = [
        (value, told.get((network, "none", 1, batch)))
        for (network, strategy, workers, batch), value in told.items()
        if strategy == "towers" and workers == 1
    ]
    apart = [abs(a - b) for a, b in pairs if a is not None and b is not None]
    if apart:
        said += f"; one tower and one process end at most {100 * max(apart):.1f} percentage points apart"
    return f"{said}."


def _table(models: dict[str, TwoParameters]) -> ExtraTable:
    """The model of two devices: as printed, solved exactly where two times were observed, and ours."""
    columns: dict[str, dict[tuple[str, int], float]] = {}
    for network in PUBLISHED:
        columns[f"{network}, as printed"] = {(what, batch): value for what, batch, value, _ in _printed(network)}
        exact = {"mlp, solved exactly": _exact()} if network == "mlp" else {}
        ours = {f"{network}, ours": models[network]} if network in models else {}
        for name, model in (exact | ours).items():
            columns[name] = {row: _value(model, *row) for row in ROWS}
    rows = tuple(
        (f"{_name(*row)}, {WHAT[row[0]][1]}", *(_said(column.get(row)) for column in columns.values())) for row in ROWS
    )
    return ExtraTable("The communication model", ("of two devices", *columns), rows)


def _operations() -> ExtraTable:
    """Where the LSTM's operations ran; there of the whole graph, here of one step."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    workload = Workload(network="lstm", data="synthetic:1x28x28/10:100", batch=100)
    parts = assemble(workload, load_data(workload), device)
    try:
        ours = count_operations(parts)
    finally:
        parts.feeder.close()
    rows = [(f"{place}, published", f"{many}", "") for place, many in OPERATIONS.items()]
    rows += [(f"{place}, here", "", f"{many}") for place, many in sorted(ours.items())]
    header = ("device", "operations of the graph", "operations of a step")
    return ExtraTable("Operations of lstm by device", header, tuple(rows))


def _said(value: float | None) -> str:
    return "" if value is None else f"{value:.5g}"
