"""A study: its experiment, full or quick, adapted to this machine, its conclusions, and how it is reproduced."""

from __future__ import annotations

import html
import importlib
import tomllib
from collections.abc import Callable
from dataclasses import astuple, dataclass, field, fields, replace
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline import data
from paceline.errors import InputError, nearest
from paceline.experiment.directory import saved_experiment
from paceline.experiment.experiment import Experiment
from paceline.experiment.reading import experiment_of
from paceline.record import write_atomically
from paceline.reporting.page import Written, report
from paceline.results.comparison_rows import FILES, TABLE, CostRow, ExtraTable, Finding, PublishedRow
from paceline.results.csv_text import csv_text
from paceline.results.table import ResultsTable

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped]

NAMES = ("elgato", "downpour", "scaling", "layers", "threads", "transfer", "dropout", "text")
"""In the order of the list. Each has a file NAME.toml and a module NAME.py here."""
FOLDER = "study"  # in the experiment's directory: the files of the conclusions
PACKAGE = "paceline.reproduction"
OF_LEARNING = ("accuracy-by-", "learned-by-", "time-to-loss")  # figures of accuracy and loss


@dataclass
class Conclusions:
    """The findings of a study, and the rows and tables that a page shows beside its runs."""

    findings: list[Finding] = field(default_factory=list)
    published: list[PublishedRow] = field(default_factory=list)
    costs: list[CostRow] = field(default_factory=list)
    tables: list[ExtraTable] = field(default_factory=list)

    def write(self, folder: Path) -> None:
        """Writes CSV files that reports read, now and later."""
        for name, kind in FILES.items():
            rows = [astuple(row) for row in (*self.findings, *self.published, *self.costs) if isinstance(row, kind)]
            (folder / name).unlink(missing_ok=True)
            if rows:
                write_atomically(folder / name, csv_text([f.name for f in fields(kind)], rows))
        for table in self.tables:
            path = folder / f"{table.title.replace(' ', '-')}{TABLE}"
            write_atomically(path, csv_text(list(table.header), table.rows))


@dataclass(frozen=True)
class Study:
    name: str
    text: str  # content of its TOML file

    @property
    def title(self) -> str:
        return str(tomllib.loads(self.text)["title"])

    @property
    def _module(self) -> Any:
        return importlib.import_module(f"{PACKAGE}.{self.name}")

    def experiment(self, *, quick: bool, cache: Path | None = None) -> Experiment:
        """The experiment, adapted to the data and devices that are available."""
        whole = experiment_of(tomllib.loads(self.text), self.name)
        adapt: Callable[[Experiment], Experiment] = getattr(self._module, "adapted", lambda given: given)
        return _with_data_at_hand(adapt(whole.quickly()), cache) if quick else adapt(whole)

    def conclude(self, found: ResultsTable, directory: Path) -> Conclusions:
        """The conclusions, with the source of published numbers. Synthetic data say nothing about learning."""
        made: Conclusions = self._module.conclude(found, directory)
        synthetic = bool(found.rows) and all(str(row.get("data")).startswith("synthetic") for row in found.rows)
        left_out = OF_LEARNING if synthetic else ()
        made.findings = [each for each in made.findings if each.sentence and not each.figure.startswith(left_out)]
        made.published = [replace(row, source=tomllib.loads(self.text)["source"]) for row in made.published]
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
    source, _, many = asked.partition(":")
    if source != "mnist" or not many.isdecimal():
        return experiment
    note = f"Data: the first {int(many):,} training images of MNIST and all test images."
    if data.path("mnist", cache=cache) is None:
        asked = f"synthetic:1x28x28/10:{many}"
        note = (
            f"Data: {int(many):,} synthetic images of the shape of MNIST, which is not in the cache. Times are "
            "comparable, accuracies are not. Download it with paceline data fetch mnist."
        )
    return replace(experiment, workload={**experiment.workload, "data": asked}, notes=(*experiment.notes, note))


@dataclass(frozen=True)
class Reproduced:
    study: Study
    table: ResultsTable
    """One row per run."""
    conclusions: Conclusions
    written: Written

    @property
    def page(self) -> Path:
        return self.written.path

    def to_pandas(self) -> pandas.DataFrame:
        return self.table.to_pandas()

    def _repr_html_(self) -> str:
        said = "".join(f"<p>{html.escape(finding)}</p>" for finding in self.findings)
        return said + self.table._repr_html_()

    @property
    def findings(self) -> list[str]:
        return [finding.sentence for finding in self.conclusions.findings]


def to_make(
    name: str | None, *, quick: bool, resume: Path | None, cache: Path | None = None
) -> tuple[Study, Experiment]:
    """The study and its experiment, or the one to resume."""
    study = find_study(name) if name is not None else None
    if resume is None:
        if study is None:
            raise InputError(f"name a study: {', '.join(NAMES)}")
        return study, study.experiment(quick=quick, cache=cache)
    before = saved_experiment(resume)
    if before.name not in NAMES:
        raise InputError(
            f"{resume} holds {before.name}, which is not a study: use `paceline.compare(resume={str(resume)!r})`"
        )
    if study is not None and study.name != before.name:
        raise InputError(f"{resume} holds {before.name}, not {study.name}")
    if quick and not before.is_quick:
        raise InputError(f"{resume} was started without `quick` and is resumed as it was")
    return find_study(before.name), before


def reproduced(study: Study, found: ResultsTable) -> Reproduced:
    conclusions = study.conclude(found, found.home)
    conclusions.write(found.home / FOLDER)
    return Reproduced(study, found, conclusions, report([found.home], found.home / "report.html"))
