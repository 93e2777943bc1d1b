"""The table of results: one row per run, one summary per setting, and files that could not be read.

`compare` writes it as results.csv and summary.csv; pages, the terminal and notebooks read it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline import record
from paceline.errors import InputError, RecordError
from paceline.notebook import NotebookRecord, to_pandas
from paceline.record import write_atomically
from paceline.results.comparison_rows import PublishedNumber
from paceline.results.csv_text import csv_text
from paceline.results.labels import grouped, varied_keys
from paceline.results.records import (
    EXPERIMENT,
    OWN_NAMES,
    RECORD,
    RESULTS,
    ExperimentRecord,
    Skipped,
    find_records,
    looks_like_a_record,
)
from paceline.results.run_result import all_results
from paceline.results.run_row import METRICS, NOT_SETTINGS, Row, columns_of
from paceline.training.run import Run

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped]

SUMMARY, PUBLISHED = "summary.csv", "published.csv"
STATISTICS = ("mean", "std", "min", "max")
# Heading, column, factor; the first that are known are shown.
SHOWN = (
    ("accuracy %", "test_accuracy", 100.0),
    ("metric", "test_metric", 1.0),
    ("iteration ms", "iteration_s", 1e3),
    ("forward ms", "forward_s", 1e3),
    ("backward ms", "backward_s", 1e3),
    ("virtual s", "virtual_s", 1.0),
    ("train s", "train_s", 1.0),
    ("updates/s", "updates_per_s", 1.0),
    ("staleness", "mean_staleness", 1.0),
    ("waiting %", "waiting_share", 100.0),
    ("samples/s", "samples_per_s", 1.0),
    ("test loss", "test_loss", 1.0),
)
MOST_COLUMNS = 6
DIGITS = 4


@dataclass(frozen=True, repr=False)
class ResultsTable(NotebookRecord):
    """The runs of an experiment, one row each, and a summary with one row per setting."""

    name: str
    title: str
    rows: tuple[Row, ...]
    """One per run, with a key for each column."""
    columns: tuple[str, ...]
    summary: tuple[Row, ...]
    """One per setting: number of runs, and mean, std, min and max of each metric over the finished ones."""
    varied: tuple[str, ...]
    """Columns in which settings differ."""
    directories: dict[str, Path]
    """Directories of the runs, by the `directory` of their row."""
    planned: int = 0
    """Runs of the experiment, finished or not; 0: unknown."""
    published: tuple[PublishedNumber, ...] = ()
    skipped: tuple[Skipped, ...] = ()

    @property
    def home(self) -> Path:
        """The directory of the experiment whose results these are."""
        return next(iter(self.directories.values())).parent.parent

    def of(self, stated: PublishedNumber) -> list[float]:
        means = (row.get(f"{stated.metric}_mean") for row in self.summary if stated.metric and stated.matches(row))
        return [mean for mean in means if isinstance(mean, int | float) and math.isfinite(mean)]

    def to_pandas(self) -> pandas.DataFrame:
        return to_pandas({column: row.get(column) for column in self.columns} for row in self.rows)

    def facts(self) -> dict[str, Any]:
        return {"title": self.title, "runs": len(self.rows)}

    def table(self) -> list[dict[str, Any]]:
        """One row per setting: the settings that differ, and mean ± standard deviation of the repetitions."""
        counts = {"runs": "n"} | {name: name for name in ("diverged", "failed", "unfinished") if self._any(name)}
        shown = [column for column in SHOWN if self._any(f"{column[1]}_mean")][:MOST_COLUMNS]
        return [
            {
                **{setting_heading(key): "" if row.get(key) is None else str(row[key]) for key in self.varied},
                **{name: row[key] for name, key in counts.items()},
                **{heading: _mean(row, column, factor) for heading, column, factor in shown},
            }
            for row in self.summary
        ]

    def _any(self, column: str) -> bool:
        return any(is_number(row.get(column)) and row[column] for row in self.summary)

    def write(self, directory: str | Path) -> list[Path]:
        """`results.csv` and `summary.csv`; `published.csv` if the experiment states published numbers."""
        of_summary = tuple(dict.fromkeys(key for row in self.summary for key in row))
        tables = {RESULTS: (self.columns, self.rows), SUMMARY: (of_summary, self.summary)}
        if self.published:
            compared: list[Row] = []
            for p in self.published:
                ours = means[0] if len(means := self.of(p)) == 1 else None  # several settings have no single value
                row = {"name": p.label, "published": p.value, "ours": ours, "unit": p.unit, "source": p.source}
                compared.append(row)
            tables[PUBLISHED] = (tuple(compared[0]), tuple(compared))
        for name, (columns, rows) in tables.items():
            cells = ([row.get(column) for column in columns] for row in rows)
            write_atomically(Path(directory) / name, csv_text(list(columns), cells))
        return [Path(directory) / name for name in tables]


def collect(*places: str | Path) -> ResultsTable:
    """The table of everything saved under `places`: experiments, runs, folders of these, or files with one record.

    >>> runs = [paceline.train("mlp", data="digits", epochs=1, lr=lr, out=f"runs/lr-{lr}") for lr in (0.05, 0.1)]
    >>> sorted(row["lr"] for row in paceline.collect("runs").rows)
    [0.05, 0.1]
    """
    for place in places:
        if not isinstance(place, str | Path):
            raise InputError(f"{place!r:.60} should be a directory or a file")
    records = find_records(places)
    results = all_results(records)
    if not results and not records.experiments and not records.skipped:
        raise InputError(f"{places[0]} holds no run, measurement, simulation or experiment")
    directories = {str(found.row["directory"]): records.directories.get(found.place, Path()) for found in results}
    experiment = records.experiments[0][1] if len(records.experiments) == 1 else None
    return results_table([found.row for found in results], directories, records.skipped, experiment, str(places[0]))


def read_run(directory: Path, root: Path) -> Row:
    """The row of one run of an experiment. Raises RecordError if a file cannot be read."""
    records = find_records([directory])
    results = all_results(records)
    if records.skipped or len(results) != 1:
        reason = records.skipped[0].reason if records.skipped else f"{len(results)} records instead of one"
        raise RecordError(f"{directory}: {reason}")
    return {**results[0].row, "directory": str(directory.relative_to(root))}


def results_table(
    rows: Iterable[Row],
    directories: dict[str, Path],
    skipped: Iterable[Skipped] = (),
    experiment: ExperimentRecord | None = None,
    name: str = "",
) -> ResultsTable:
    """From rows in any order."""
    ordered = sorted(rows, key=lambda row: (row.get("number") or 0, str(row["directory"])))
    columns = columns_of(ordered)
    settings = [c for c in columns if c not in NOT_SETTINGS | {"seed", "measure"} or c == "kind"]
    given = [row.get("given") or {key: row.get(key) for key in settings} for row in ordered]
    name = experiment.name if experiment else Path(name).name
    return ResultsTable(
        name=name,
        title=(experiment.title if experiment else "") or name,
        rows=tuple({column: row.get(column) for column in columns} for row in ordered),
        columns=columns,
        summary=tuple(_summary(ordered, [*settings, *(["measure"] if "measure" in columns else [])], columns)),
        varied=tuple(key for key in varied_keys(given) if key in columns and key not in ("seed", "cores")),
        directories=directories,
        planned=max((row.get("planned") or 0 for row in ordered), default=0) if experiment else 0,
        published=experiment.published if experiment else (),
        skipped=tuple(skipped),
    )


def _summary(rows: list[Row], settings: list[str], columns: Sequence[str]) -> Iterator[Row]:
    metrics = [column for column in columns if column in METRICS]
    for setting, members in grouped(rows, lambda row: row["setting"]).items():
        finished = [row for row in members if row["status"] == "finished"]
        count = {status: sum(row["status"] == status for row in members) for status in ("diverged", "failed")}
        found: Row = {"setting": setting, **{key: members[0].get(key) for key in settings}}
        found |= {"n": len(finished), **count, "unfinished": len(members) - len(finished) - sum(count.values())}
        for metric in metrics:
            values = [float(row[metric]) for row in finished if is_number(row.get(metric))]
            found |= {f"{metric}_{name}": value for name, value in zip(STATISTICS, spread(values), strict=True)}
        yield found


def spread(values: list[float]) -> tuple[float, float, float, float]:
    """Mean, sample standard deviation (NaN for a single value), minimum and maximum."""
    if not values:
        return (math.nan,) * 4
    deviation = statistics.stdev(values) if len(values) > 1 else math.nan
    return statistics.fmean(values), deviation, min(values), max(values)


def setting_heading(key: str) -> str:
    return key.replace("_", "-")


def _mean(row: Row, column: str, factor: float) -> str:
    mean, deviation = (factor * row.get(f"{column}_{name}", math.nan) for name in ("mean", "std"))
    if not math.isfinite(mean):
        return "–"
    places = 2 if not mean else min(6, max(0, DIGITS - 1 - math.floor(math.log10(abs(mean)))))
    return f"{mean:,.{places}f}" + (f" ± {deviation:,.{places}f}" if math.isfinite(deviation) else "")


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def load(path: str | Path) -> Any:
    """Load the record in a file or directory. An experiment's directory gives the table of its results.

    >>> run = paceline.train("mlp", data="digits", epochs=1, out="runs/loaded")
    >>> paceline.load("runs/loaded").test_accuracy == run.test_accuracy
    True
    """
    if not isinstance(path, str | Path):
        raise RecordError(f"path={path!r:.60} should be the file or directory of a record")
    path = Path(path)
    if (path / EXPERIMENT).exists():
        return collect(path)
    file = _file_in(path) if path.is_dir() else path
    found = record.load(file)
    if isinstance(found, Run):  # it may have been moved
        return replace(found, directory=str(file.resolve().parent))
    return found


def _file_in(directory: Path) -> Path:
    """The main record of a directory, or the only one."""
    try:
        usual = [directory / name for name in OWN_NAMES if (directory / name).exists()]
        found = usual[:1] or [file for file in sorted(directory.glob("*.json")) if looks_like_a_record(file)]
    except OSError as error:
        raise RecordError(f"cannot read {directory}: {error.strerror}") from error
    if not found:
        raise RecordError(f"no record at {directory / RECORD}")
    if len(found) > 1:
        raise RecordError(f"{directory} holds several records: name {' or '.join(file.name for file in found)}")
    return found[0]
