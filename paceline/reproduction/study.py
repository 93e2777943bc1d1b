"""A study: its experiment, full or quick, as this machine can run it, and its conclusions."""

from __future__ import annotations

import importlib
import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from paceline import data
from paceline.errors import InputError, nearest
from paceline.experiment.experiment import Experiment
from paceline.experiment.reading import experiment_of
from paceline.record import write_atomically
from paceline.results.comparison_rows import FILES, TABLE, CostRow, ExtraTable, Finding, PublishedRow
from paceline.results.csv_text import csv_text
from paceline.results.table import ResultsTable

NAMES = ("elgato", "downpour", "scaling", "layers", "threads", "transfer", "dropout", "text")
"""In the order in which they are listed; each has a file NAME.toml and a module NAME.py here."""
FOLDER = "study"
"""In the directory of the experiment: the files of its conclusions."""
PACKAGE = "paceline.reproduction"


@dataclass
class Conclusions:
    """The findings of a study, and the rows and tables that a page shows beside its runs."""

    findings: list[Finding] = field(default_factory=list)
    published: list[PublishedRow] = field(default_factory=list)
    costs: list[CostRow] = field(default_factory=list)
    tables: list[ExtraTable] = field(default_factory=list)

    def write(self, folder: Path) -> None:
        """As files that a report finds, also one that is made later."""
        kinds: dict[type, list[Any]] = {
            Finding: self.findings, PublishedRow: self.published, CostRow: self.costs,
        }  # fmt: skip
        for name, kind in FILES.items():
            columns = [f.name for f in fields(kind)]
            (folder / name).unlink(missing_ok=True)
            if found := kinds.get(kind):
                rows = [[getattr(row, column) for column in columns] for row in found]
                write_atomically(folder / name, csv_text(columns, rows))
        for table in self.tables:
            path = folder / f"{table.title.replace(' ', '-')}{TABLE}"
            write_atomically(path, csv_text(list(table.header), table.rows))


@dataclass(frozen=True)
class Study:
    name: str
    text: str
    """Of its file."""

    @property
    def title(self) -> str:
        return str(tomllib.loads(self.text)["title"])

    @property
    def _module(self) -> Any:
        return importlib.import_module(f"{PACKAGE}.{self.name}")

    def experiment(self, *, quick: bool, cache: Path | None = None) -> Experiment:
        """As it can run here, with the data and devices that are available."""
        whole = experiment_of(tomllib.loads(self.text), self.name)
        adapt: Callable[[Experiment], Experiment] = getattr(self._module, "adapted", lambda given: given)
        if not quick:
            return adapt(whole)
        make: Callable[[Experiment], Experiment] = getattr(self._module, "quickly", Experiment.quickly)
        made = adapt(make(whole))
        return _with_data_at_hand(replace(made, notes=(*made.notes, self._module.QUICK)), cache)

    def conclude(self, found: ResultsTable, directory: Path) -> Conclusions:
        made: Conclusions = self._module.conclude(found, directory)
        return made


def known_studies() -> list[Study]:
    return [find_study(name) for name in NAMES]


def find_study(name: str) -> Study:
    if name not in NAMES:
        raise InputError(f"no study {name!r}: {nearest(name, NAMES)}")
    return Study(name, files(PACKAGE).joinpath(f"{name}.toml").read_text(encoding="utf-8"))


def _with_data_at_hand(experiment: Experiment, cache: Path | None) -> Experiment:
    """A quick run downloads nothing: without MNIST in the cache, synthetic images of the same shape are used."""
    asked = str(experiment.workload.get("data", ""))
    mnist = re.fullmatch(r"mnist:(\d+)", asked)
    if mnist is None:
        return experiment
    if data.path("mnist", cache=cache) is not None:
        note = f"Data: the first {int(mnist.group(1)):,} training images of MNIST and all test images."
        return replace(experiment, notes=(*experiment.notes, note))
    made = f"synthetic:1x28x28/10:{mnist.group(1)}"
    note = (
        f"Data: {int(mnist.group(1)):,} synthetic images of the shape of MNIST, which is not in the cache. Times are "
        "comparable, accuracies are not. Download it with paceline data fetch mnist."
    )
    return replace(experiment, workload={**experiment.workload, "data": made}, notes=(*experiment.notes, note))
