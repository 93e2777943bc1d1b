"""Collects what runs have left in their directories: rows, a summary, and what could not be read."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline import record
from paceline.errors import InputError, PacelineError
from paceline.experiment.experiment import Experiment
from paceline.experiment.figures import FIGURES
from paceline.experiment.places import EXPERIMENT, RUNS
from paceline.experiment.planning import varied_keys
from paceline.experiment.published import Published
from paceline.experiment.rows import CONDITIONS, Row, columns_of, is_run, row_of, row_of_file
from paceline.record import write_atomically
from paceline.reporting.csv_text import csv_text

RESULTS, SUMMARY, PUBLISHED = "results.csv", "summary.csv", "published.csv"
SPREADS = ("mean", "std", "min", "max")
_OF_ONE_RUN = ("run", "repetition", "seed", "status", "error", "started", "directory")


@dataclass(frozen=True)
class Skipped:
    """A run that cannot be read, and why."""

    place: str
    reason: str


@dataclass(frozen=True)
class Collection:
    """Everything a report of an experiment needs."""

    name: str
    title: str
    rows: tuple[Row, ...]
    """One a run; every column has a key in each."""
    columns: tuple[str, ...]
    summary: tuple[Row, ...]
    """One a setting: how many runs, and of each figure mean, std, min and max over those that finished."""
    varied: tuple[str, ...]
    """Columns in which settings differ."""
    directories: dict[str, Path]
    """Of the runs, by the row's `directory`."""
    planned: int
    """Runs of the experiment, whether they are there yet or not; 0: not known."""
    published: tuple[Published, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    experiment: Experiment | None = None

    @property
    def summary_columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(key for row in self.summary for key in row))

    def of(self, number: Published) -> list[float]:
        """The means of our own that a published number is to be compared with."""
        means = (row.get(f"{number.metric}_mean") for row in self.summary if number.metric and number.matches(row))
        return [mean for mean in means if isinstance(mean, int | float) and math.isfinite(mean)]

    def write(self, directory: str | Path) -> list[Path]:
        """`results.csv` and `summary.csv`, as pandas and spreadsheets read them; `published.csv` if there is any."""
        tables = {RESULTS: (self.columns, self.rows), SUMMARY: (self.summary_columns, self.summary)}
        if self.published:
            beside = tuple(
                {"name": p.label, "published": p.value, "ours": _only(self.of(p)), "unit": p.unit, "source": p.source}
                for p in self.published
            )
            tables[PUBLISHED] = (tuple(beside[0]), beside)
        for name, (columns, rows) in tables.items():
            cells = ([_cell(row.get(column)) for column in columns] for row in rows)
            write_atomically(Path(directory) / name, csv_text(list(columns), cells))
        return [Path(directory) / name for name in tables]


def collect(*places: str | Path) -> Collection:
    """What is saved in directories of experiments or of runs, in folders of such, or in files with one record."""
    if not places:
        raise InputError("name a directory to collect from")
    rows: list[Row] = []
    directories: dict[str, Path] = {}
    skipped: list[Skipped] = []
    experiments: list[Experiment] = []
    for place in map(Path, places):
        if not place.exists():
            raise InputError(f"{place}: there is no such file or directory")
        found = len(rows) + len(skipped)
        for root, directory in _runs_below(place):
            alone = len(places) == 1 and root == place
            shown = str(directory.relative_to(place)) if alone and directory != place else str(directory)
            try:
                row = row_of(directory, shown) if directory.is_dir() else row_of_file(directory, shown)
            except PacelineError as error:
                skipped.append(Skipped(str(directory), str(error)))
                continue
            rows.append(row)
            directories[shown] = directory
        holds_experiment = (place / EXPERIMENT).exists()
        if len(rows) + len(skipped) == found and not holds_experiment:
            raise InputError(f"{place} holds no run, measurement, simulation or experiment")
        if holds_experiment:
            try:
                experiments.append(record.load(place / EXPERIMENT))
            except PacelineError as error:
                skipped.append(Skipped(str(place / EXPERIMENT), str(error)))
    return collection_of(rows, directories, skipped, experiments, str(places[0]))


def _runs_below(place: Path) -> Iterator[tuple[Path, Path]]:
    """(experiment or folder, directory or file of a run), without looking inside runs."""
    if place.is_file():
        yield place.parent, place
    elif (place / EXPERIMENT).exists():
        found = sorted(d for d in _folders(place / RUNS) if is_run(d) or any(d.iterdir()))
        yield from ((place, directory) for directory in found)
    elif is_run(place):
        yield place, place
    else:
        for folder in _folders(place):
            yield from _runs_below(folder)


def _folders(place: Path) -> list[Path]:
    try:
        return sorted(d for d in place.iterdir() if d.is_dir() and not d.name.startswith(".") and not d.is_symlink())
    except OSError:
        return []


def collection_of(
    rows: Iterable[Row],
    directories: dict[str, Path],
    skipped: Iterable[Skipped] = (),
    experiments: list[Experiment] | None = None,
    name: str = "",
) -> Collection:
    """From rows as they were read, in any order."""
    experiment = experiments[0] if experiments and len(experiments) == 1 else None
    ordered = sorted(rows, key=lambda row: (row.get("number", 0), str(row["directory"])))
    columns = columns_of(ordered)
    of_settings = [c for c in columns if c not in (*FIGURES, *CONDITIONS, *_OF_ONE_RUN, "setting", "trial")]
    varied = [key for key in varied_keys([row["given"] for row in ordered]) if key in of_settings]
    return Collection(
        name=experiment.name if experiment else Path(name).name,
        title=(experiment.title or experiment.name) if experiment else Path(name).name,
        rows=tuple({column: row.get(column) for column in columns} for row in ordered),
        columns=columns,
        summary=tuple(_summary(ordered, of_settings, [c for c in columns if c in FIGURES])),
        varied=tuple(varied),
        directories=directories,
        planned=max((row.get("planned", 0) for row in ordered), default=0) if experiment else 0,
        published=experiment.published if experiment else (),
        skipped=tuple(skipped),
        experiment=experiment,
    )


def _summary(rows: list[Row], settings: list[str], figures: list[str]) -> Iterator[Row]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row["setting"], []).append(row)
    for setting, members in groups.items():
        finished = [row for row in members if row["status"] == "finished"]
        count = {status: sum(row["status"] == status for row in members) for status in ("diverged", "failed")}
        found: Row = {"setting": setting, **{key: members[0].get(key) for key in settings}}
        found |= {"n": len(finished), **count, "unfinished": len(members) - len(finished) - sum(count.values())}
        for figure in figures:
            values = [float(row[figure]) for row in finished if _is_number(row.get(figure))]
            found |= {f"{figure}_{name}": value for name, value in zip(SPREADS, spread(values), strict=True)}
        yield found


def spread(values: list[float]) -> tuple[float, float, float, float]:
    """Mean, standard deviation of the sample (none of a single value), least and greatest."""
    if not values:
        return (math.nan,) * 4
    deviation = statistics.stdev(values) if len(values) > 1 else math.nan
    return statistics.fmean(values), deviation, min(values), max(values)


def _only(values: list[float]) -> float:
    """Several settings have no one figure."""
    return values[0] if len(values) == 1 else math.nan


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _cell(value: Any) -> Any:
    if value is None:
        return ""
    return " ".join(value.split()) if isinstance(value, str) else value
