"""Finds and loads the records and CSV rows in directories; unreadable files are listed."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from paceline import record
from paceline.advice.advice import Advice
from paceline.cost.prediction import Prediction
from paceline.cost.verification import Verification, described
from paceline.errors import InputError, PacelineError, RecordError
from paceline.measurement.feeding import Feeding
from paceline.measurement.links import LinkMeasurement
from paceline.measurement.measurement import Measurement
from paceline.planning.plan import Plan
from paceline.results import outcome
from paceline.results.comparison_rows import (
    FILES,
    TABLE,
    CostRow,
    ExtraTable,
    Finding,
    PredictionRow,
    PublishedNumber,
    PublishedRow,
    read_rows,
    read_table,
)
from paceline.results.csv_text import read_csv
from paceline.results.outcome import RunOutcome
from paceline.simulation.scaling import Scaling
from paceline.simulation.timing import TimeRecord
from paceline.training.evaluate import Evaluation
from paceline.training.run import Run

RECORD, MEASUREMENT, RESULTS = "record.json", "measurement.json", "results.csv"
OWN_NAMES = (RECORD, MEASUREMENT, outcome.FILE)  # main record of a directory, in order of precedence
NOT_SHOWN = ("trace.json", "events.json")
EXPERIMENT, NOT_COUNTED = "experiment.json", ("working", "damaged")  # folders of an experiment without results


@dataclass(frozen=True)
class Skipped:
    """A file that could not be read, and why."""

    place: str
    reason: str


@runtime_checkable
class ExperimentRecord(Protocol):
    """The attributes of an experiment that tables and pages need."""

    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def notes(self) -> tuple[str, ...]: ...
    @property
    def published(self) -> tuple[PublishedNumber, ...]: ...


LISTS: dict[type, str] = {
    Run: "runs", TimeRecord: "simulations", Measurement: "measurements", LinkMeasurement: "links",
    Evaluation: "evaluations", Feeding: "feedings", Advice: "advice", Plan: "plans", Scaling: "clusters",
    RunOutcome: "outcomes", PredictionRow: "predictions", PublishedRow: "published", CostRow: "costs",
    Finding: "findings", ExtraTable: "tables", Prediction: "expected",
}  # fmt: skip
WITHOUT_PLACE = (PredictionRow, PublishedRow, CostRow, Finding, ExtraTable, Prediction)


@dataclass
class Records:
    """The contents of a report; each record with the place where it was found."""

    runs: list[tuple[str, Run]] = field(default_factory=list)
    simulations: list[tuple[str, TimeRecord]] = field(default_factory=list)
    measurements: list[tuple[str, Measurement]] = field(default_factory=list)
    links: list[tuple[str, LinkMeasurement]] = field(default_factory=list)
    evaluations: list[tuple[str, Evaluation]] = field(default_factory=list)
    feedings: list[tuple[str, Feeding]] = field(default_factory=list)
    advice: list[tuple[str, Advice]] = field(default_factory=list)
    plans: list[tuple[str, Plan]] = field(default_factory=list)
    clusters: list[tuple[str, Scaling]] = field(default_factory=list)
    predictions: list[PredictionRow] = field(default_factory=list)
    published: list[PublishedRow] = field(default_factory=list)
    costs: list[CostRow] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    tables: list[ExtraTable] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # by the authors of experiments
    expected: list[Prediction] = field(default_factory=list)  # predicted iterations, to compare with measured ones
    experiments: list[tuple[str, ExperimentRecord]] = field(default_factory=list)
    outcomes: list[tuple[str, RunOutcome]] = field(default_factory=list)  # of the runs of experiments
    rows: list[tuple[str, dict[str, Any]]] = field(default_factory=list)  # runs known only from a results.csv
    skipped: list[Skipped] = field(default_factory=list)
    directories: dict[str, Path] = field(default_factory=dict)  # path of each place on this machine
    title: str = ""
    price: float | None = None  # per machine and hour

    @property
    def counts(self) -> dict[str, int]:
        """The number of records and rows of each kind that there is."""
        lists: dict[str, Sequence[Any]] = {
            "runs": [*self.runs, *self.rows], "failed runs": self.failed, "advice": self.advice, "plans": self.plans,
            "simulations": [*self.simulations, *self.clusters], "measurements": self.measurements,
            "link measurements": self.links, "feedings": self.feedings, "evaluations": self.evaluations,
            "predictions": self.all_predictions, "published figures": self.published, "costs": self.costs,
            "tables": self.tables,
        }  # fmt: skip
        return {what: len(some) for what, some in lists.items() if some}

    @property
    def failed(self) -> list[tuple[str, RunOutcome]]:
        return [entry for entry in self.outcomes if entry[1].status == "failed"]

    def directory(self, place: str) -> str:
        """The directory of a run, relative to its experiment if it belongs to one."""
        path = self.directories.get(place, Path(place))
        for home, _ in self.experiments if len(self.experiments) == 1 else ():
            root = self.directories[home].parent
            if path.is_relative_to(root) and path != root:
                return str(path.relative_to(root))
        return str(path)

    @property
    def all_predictions(self) -> list[PredictionRow]:
        """Predictions given as rows, and predicted iterations with the measurement of the same iteration."""
        known = {row.name for row in self.predictions}  # already part of a verification
        beside = (self._compared(expected) for expected in self.expected)
        return [*self.predictions, *(row for row in beside if row.name not in known)]

    def _compared(self, expected: Prediction) -> PredictionRow:
        same = (expected.name, expected.batch, expected.device)
        measured = [m.iteration_s.median_s for _, m in self.measurements if (m.name, m.batch, m.device_name) == same]
        name = described("an iteration", *same)
        seconds = measured[0] if len(measured) == 1 else math.nan  # with several, none is preferred
        return PredictionRow(name, expected.iteration_s, expected.low_s, expected.high_s, seconds)

    def add(self, place: str, found: Any) -> bool:
        """Adds a record or row; returns False if reports do not show its kind."""
        if type(found) in LISTS:
            getattr(self, LISTS[type(found)]).append(found if isinstance(found, WITHOUT_PLACE) else (place, found))
        elif isinstance(found, Verification):
            self.predictions += [PredictionRow(*row) for row in found.prediction_rows()]
        elif isinstance(found, ExperimentRecord):
            self.experiments.append((place, found))
            self.title = self.title or found.title or found.name
            self.notes += [note for note in found.notes if note not in self.notes]
        else:
            return False
        return True


def find_records(paths: Iterable[str | Path]) -> Records:
    """All records under the paths. It is an error if there are none that can be read."""
    records, seen = Records(), set[Path]()
    given = [Path(path) for path in paths]
    if not given:
        raise InputError("name at least one directory with records to report on")
    for path in given:
        if not path.exists():
            raise InputError(f"{path}: no such file or directory")
        for file in files_under(path) if path.is_dir() else [path]:
            if file.resolve() not in seen:
                seen.add(file.resolve())
                _read_file(file, path, records)
    if records.counts:
        return records
    where = " or ".join(str(path) for path in given[:3]) + (" and others" if given[3:] else "")
    if records.skipped:
        first, many = records.skipped[0], len(records.skipped)
        said = f"{many} records, none of which can be read" if many > 1 else "one record, which cannot be read"
        raise RecordError(f"{where} has {said}; {first.place}: {first.reason}")
    raise RecordError(f"no records in {where}: train, measure, compare, simulate and plan save records, with `out`")


def files_under(directory: Path) -> Iterator[Path]:
    """Files that may be records, in an order that does not depend on the file system."""
    for place, folders, names in os.walk(directory):
        # The runs of an experiment are read instead of its results.csv.
        left_out = (*NOT_SHOWN, *((*NOT_COUNTED, RESULTS) if EXPERIMENT in names else ()))
        folders[:] = sorted(folder for folder in folders if not folder.startswith(".") and folder not in left_out)
        copied = {f"{folder}.json" for folder in folders}  # a worker's clock wrote it; its folder has the same record
        names = [name for name in sorted(names) if not (name.startswith("worker-") and name in copied)]
        yield from (Path(place, name) for name in names if name not in left_out and _may_be_a_record(name))


def _may_be_a_record(name: str) -> bool:
    return name == RESULTS or name in FILES or (name.endswith((".json", TABLE)) and name[0] != ".")


def _read_file(file: Path, given: Path, records: Records) -> None:
    named = file == given
    # Pages do not reveal absolute paths.
    place = file.name if named else str(Path(given.resolve().name) / file.relative_to(given))
    try:
        if file.name in FILES:
            for row in read_rows(file, FILES[file.name]):
                records.add(place, row)
        elif file.name == RESULTS:
            records.rows += [(f"{place}, line {line}", row) for line, row in enumerate(read_csv(file), 2)]
        elif file.name.endswith(TABLE):
            records.add(place, read_table(file))
        elif named or file.name in OWN_NAMES or looks_like_a_record(file):
            found = record.load(file)
            inside = file.name in OWN_NAMES and not named
            home = str(Path(place).parent) if inside else place
            records.directories[home] = file.parent if inside else file
            if not records.add(home, found) and named:
                records.skipped.append(Skipped(place, f"holds {type(found).__name__}, which a report does not show"))
    except PacelineError as error:
        reason = str(error).removeprefix(f"{file} ").removeprefix("is ")  # the place is shown beside it
        records.skipped.append(Skipped(place, reason.replace(str(file), file.name)))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        records.skipped.append(Skipped(place, f"cannot be read: {type(error).__name__}: {error}"[:300]))


def looks_like_a_record(file: Path) -> bool:
    """Whether a JSON file is one of ours."""
    with file.open("rb") as opened:
        head = opened.read(400)
    return b'"schema"' in head and b'"kind"' in head
