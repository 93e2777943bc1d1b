"""Reproduces a published study: its runs, its conclusions, and a page."""

from __future__ import annotations

import html
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from paceline import data
from paceline.errors import InputError
from paceline.experiment.executing import execute
from paceline.experiment.experiment import Experiment
from paceline.experiment.experiment_directory import saved_experiment
from paceline.experiment.watcher import ExperimentWatcher
from paceline.reporting import report
from paceline.reporting.writing import Written
from paceline.reproduction import Conclusions, Study, find_study
from paceline.reproduction.study import FOLDER, NAMES
from paceline.results.table import ResultsTable

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped]


@dataclass(frozen=True)
class Reproduced:
    study: Study
    directory: Path
    found: ResultsTable
    conclusions: Conclusions
    written: Written

    @property
    def table(self) -> ResultsTable:
        """A row for each run."""
        return self.found

    @property
    def page(self) -> Path:
        return self.written.path

    def to_pandas(self) -> pandas.DataFrame:
        return self.found.to_pandas()

    def _repr_html_(self) -> str:
        said = "".join(f"<p>{html.escape(finding)}</p>" for finding in self.findings)
        return said + self.found._repr_html_()

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


def reproduce(
    name: str | None = None,
    *,
    quick: bool = False,
    out: str | Path | None = None,
    resume: str | Path | None = None,
    jobs: int = 1,
    retry: bool = False,
    cache: Path | None = None,
    progress: data.Progress | None = None,
    watcher: ExperimentWatcher | None = None,
) -> Reproduced:
    """Runs a study in a new directory, or the runs that `resume` does not have yet, and writes its page."""
    if out is not None and resume is not None:
        raise InputError("`out` and `resume` cannot be combined: what is resumed stays in its directory")
    before = None if resume is None else Path(resume)
    study, experiment = to_make(name, quick=quick, resume=before, cache=cache)
    found = execute(
        experiment, out=out, resume=before, jobs=jobs, retry=retry, cache=cache, progress=progress, watcher=watcher,
        text="" if before else study.text, verb="reproduce",
    )  # fmt: skip
    place = next(iter(found.directories.values())).parent.parent  # of all of them
    conclusions = study.conclude(found, place)
    conclusions.write(place / FOLDER)
    written = report([place], place / "report.html")
    return Reproduced(study, place, found, conclusions, written)
