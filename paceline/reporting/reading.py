"""Finds what is saved under directories: records of every kind, and rows beside them. What cannot be read is named."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from paceline import record
from paceline.cost.verification import described
from paceline.errors import InputError, PacelineError, RecordError
from paceline.measurement.feeding import Feeding
from paceline.measurement.links import LinkMeasurement
from paceline.measurement.measurement import Measurement
from paceline.planning.plan import Plan
from paceline.reporting.given_rows import (
    FILES,
    TABLE,
    Cost,
    Finding,
    GivenTable,
    Prediction,
    Published,
    Row,
    read_rows,
    read_table,
)
from paceline.simulation.scaling import Scaling
from paceline.simulation.time_record import TimeRecord
from paceline.training.evaluate import Evaluation
from paceline.training.run import Run

OWN_NAMES = ("record.json", "measurement.json")
NOT_SHOWN = ("trace.json", "events.json")
EXPERIMENT, NOT_COUNTED = "experiment.json", ("working", "damaged")
"""Folders of an experiment in which nothing is a result."""


@dataclass(frozen=True)
class Skipped:
    """A file that should have been in the report and could not be read."""

    place: str
    reason: str


@dataclass(frozen=True)
class Failed:
    """A run of an experiment that came to nothing."""

    label: str
    error: str
    place: str


class ExpectedIteration(Protocol):
    """What a record that predicts an iteration has."""

    name: str
    batch: int
    device: str
    iteration_s: float
    low_s: float
    high_s: float


@dataclass
class Records:
    """All that a report is about; each record with the place it was found at."""

    runs: list[tuple[str, Run]] = field(default_factory=list)
    simulations: list[tuple[str, TimeRecord]] = field(default_factory=list)
    measurements: list[tuple[str, Measurement]] = field(default_factory=list)
    links: list[tuple[str, LinkMeasurement]] = field(default_factory=list)
    evaluations: list[tuple[str, Evaluation]] = field(default_factory=list)
    feedings: list[tuple[str, Feeding]] = field(default_factory=list)
    plans: list[tuple[str, Plan]] = field(default_factory=list)
    clusters: list[tuple[str, Scaling]] = field(default_factory=list)
    predictions: list[Prediction] = field(default_factory=list)
    published: list[Published] = field(default_factory=list)
    costs: list[Cost] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    tables: list[GivenTable] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What the author of an experiment wants to be known of it."""
    expected: list[ExpectedIteration] = field(default_factory=list)
    """Predictions of an iteration, to be compared with measurements of the same."""
    failed: list[Failed] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    title: str = ""
    price: float | None = None
    """Of a machine an hour."""

    @property
    def found(self) -> int:
        """How many records, and rows beside them."""
        records = len(self.runs) + len(self.simulations) + len(self.measurements) + len(self.links) + len(self.feedings)
        beside = len(self.predictions) + len(self.published) + len(self.costs) + len(self.tables) + len(self.plans)
        return records + len(self.clusters) + len(self.evaluations) + len(self.expected) + len(self.failed) + beside

    @property
    def all_predictions(self) -> list[Prediction]:
        """Those that were given as rows, and those of iterations beside what was measured."""
        known = {row.name for row in self.predictions}  # a verification has said it already
        beside = (self._compared(expected) for expected in self.expected)
        return [*self.predictions, *(row for row in beside if row.name not in known)]

    def _compared(self, expected: ExpectedIteration) -> Prediction:
        same = (expected.name, expected.batch, expected.device)
        measured = [m.iteration_s.median_s for _, m in self.measurements if (m.name, m.batch, m.device_name) == same]
        name = described("an iteration", *same)
        seconds = measured[0] if len(measured) == 1 else math.nan  # several would need someone to choose
        return Prediction(name, expected.iteration_s, expected.low_s, expected.high_s, seconds)

    def add(self, place: str, found: Any) -> bool:
        """Whether it is something that a report shows."""
        homes: dict[type, list[Any]] = {
            Run: self.runs, TimeRecord: self.simulations, Measurement: self.measurements, LinkMeasurement: self.links,
            Evaluation: self.evaluations, Feeding: self.feedings, Plan: self.plans, Scaling: self.clusters,
        }  # fmt: skip
        home = homes.get(type(found))
        if home is not None:
            home.append((place, found))
            return True
        if hasattr(found, "prediction_rows"):  # a plan, or what came of one, says itself what is to be compared
            self.predictions += [Prediction(*row) for row in found.prediction_rows()]
            return True
        kind = kind_of(found)
        if kind == "experiment":
            self.title = self.title or found.title or found.name
            self.notes += [note for note in found.notes if note not in self.notes]
        elif kind == "outcome" and found.status == "failed":
            self.failed.append(Failed(found.label, found.error, place))
        elif kind == "prediction":
            self.expected.append(found)
        return kind in ("experiment", "outcome", "prediction")

    def add_rows(self, rows: Iterable[Row]) -> None:
        for row in rows:
            if isinstance(row, Prediction):
                self.predictions.append(row)
            elif isinstance(row, Published):
                self.published.append(row)
            elif isinstance(row, Cost):
                self.costs.append(row)
            else:
                self.findings.append(row)


def kind_of(found: Any) -> str:
    """By which its file is known; records of rooms above this one are known by nothing else."""
    home = f"{type(found).__module__}:{type(found).__qualname__}"
    return next((kind for kind, place in record.KINDS.items() if place == home), "")


def read(paths: Iterable[str | Path]) -> Records:
    """Everything under the paths. Nothing at all is an error, something beside what is broken is not."""
    records, seen = Records(), set[Path]()
    given = [Path(path) for path in paths]
    if not given:
        raise InputError("name at least one directory with records to report on")
    for path in given:
        if not path.exists():
            raise InputError(f"{path}: there is no such file or directory")
        for file in files_under(path) if path.is_dir() else [path]:
            if file.resolve() not in seen:
                seen.add(file.resolve())
                _read_file(file, path, records)
    if not records.found:
        _refuse(given, records)
    return records


def _refuse(given: list[Path], records: Records) -> None:
    where = " or ".join(str(path) for path in given[:3]) + (" and others" if given[3:] else "")
    if records.skipped:
        first = records.skipped[0]
        many = len(records.skipped)
        said = f"{many} records, none of which can be read" if many > 1 else "one record, which cannot be read"
        raise RecordError(f"{where} has {said}; {first.place}: {first.reason}")
    come = "they come from train, measure, compare and plan --out, and simulate --json"
    raise RecordError(f"no records in {where}: {come}")


def files_under(directory: Path) -> Iterator[Path]:
    """Files that may be of interest, in an order that does not depend on the file system."""
    for place, folders, names in os.walk(directory):
        left_out = NOT_COUNTED if EXPERIMENT in names else ()
        folders[:] = sorted(folder for folder in folders if not folder.startswith(".") and folder not in left_out)
        for name in sorted(names):
            if name in FILES or (name.endswith((".json", TABLE)) and name[0] != "." and name not in NOT_SHOWN):
                yield Path(place, name)


def place_of(file: Path, given: Path) -> str:
    """Where it is, from the directory that was named on; no page tells where on a machine that is."""
    return file.name if file == given else str(Path(given.resolve().name) / file.relative_to(given))


def _read_file(file: Path, given: Path, records: Records) -> None:
    place, named = place_of(file, given), file == given
    try:
        if file.name in FILES:
            records.add_rows(read_rows(file, FILES[file.name]))
        elif file.name.endswith(TABLE):
            records.tables.append(read_table(file))
        elif named or file.name in OWN_NAMES or looks_like_a_record(file):
            found = record.load(file)
            home = str(Path(place).parent) if file.name in OWN_NAMES and not named else place
            if not records.add(home, found) and named:
                records.skipped.append(Skipped(place, f"holds {type(found).__name__}, which a report does not show"))
    except PacelineError as error:
        records.skipped.append(Skipped(place, _without_place(str(error), file)))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        records.skipped.append(Skipped(place, f"cannot be read: {type(error).__name__}: {error}"[:300]))


def looks_like_a_record(file: Path) -> bool:
    """Other programs write JSON, too."""
    with file.open("rb") as opened:
        head = opened.read(400)
    return b'"schema"' in head and b'"kind"' in head


def _without_place(text: str, file: Path) -> str:
    """The place stands before the reason already."""
    return text.removeprefix(f"{file} ").removeprefix("is ").replace(str(file), file.name)
