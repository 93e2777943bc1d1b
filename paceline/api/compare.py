"""`paceline.compare`: an experiment of many runs, kept as they finish, and its table of results."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.api.settings import as_optional_path
from paceline.errors import InputError

if TYPE_CHECKING:
    from paceline import data
    from paceline.experiment.experiment import Experiment
    from paceline.experiment.watcher import ExperimentWatcher
    from paceline.results.table import ResultsTable


def compare(
    experiment: str | Path | Mapping[str, Any] | Experiment | None = None,
    *,
    out: str | Path | None = None,
    resume: str | Path | None = None,
    jobs: int = 1,
    quick: bool = False,
    retry: bool = False,
    data_dir: str | Path | None = None,
    tensorboard: str | Path | None = None,
    watcher: ExperimentWatcher | None = None,
    downloads: data.Progress | None = None,
) -> ResultsTable:
    """Run an experiment, a grid of settings with repetitions, and return its table of results.

    `experiment` is a TOML file, the same as a dictionary, or an `Experiment`. The runs, the tables and a page are kept
    in `out`, or in runs/NAME-N. An experiment that was interrupted continues with `resume=` its directory; then
    `retry` makes failed runs again. `jobs` runs are made at a time. `quick` makes the small version that the file
    describes under [quick]. Each run has a row, also one that failed: see its `status` and `error`.

    >>> table = paceline.compare({
    ...     "name": "rates", "workload": {"network": "mlp", "data": "digits", "epochs": 1}, "grid": {"lr": [0.05, 0.1]},
    ... }, out="runs/rates")
    >>> [(row["lr"], row["status"]) for row in table.rows]
    [(0.05, 'finished'), (0.1, 'finished')]
    """
    from paceline.experiment.executing import execute
    from paceline.reporting.page import report

    before = as_optional_path(resume, "resume")
    study, text = to_execute(experiment, before, quick)
    found = execute(
        study, out=as_optional_path(out, "out"), resume=before, jobs=jobs, retry=retry, text=text, watcher=watcher,
        cache=as_optional_path(data_dir, "data_dir"), progress=downloads,
        tensorboard=as_optional_path(tensorboard, "tensorboard"),
    )  # fmt: skip
    report([found.home], found.home / "report.html")
    return found


def to_execute(
    experiment: str | Path | Mapping[str, Any] | Experiment | None, resume: Path | None, quick: bool
) -> tuple[Experiment, str]:
    """What is to be executed, and the text of its file; without one, what is to be resumed."""
    from paceline.experiment.directory import saved_experiment
    from paceline.experiment.experiment import Experiment
    from paceline.experiment.reading import experiment_of, naming, read_experiment

    if experiment is None and resume is None:
        raise InputError("name the TOML file of an experiment, or `resume` one")
    before = saved_experiment(resume) if resume is not None else None
    if before is not None and quick and not before.is_quick:
        raise InputError(f"{resume} was started without `quick` and is resumed as it was")
    if experiment is None:
        assert before is not None
        return before, ""
    small = quick or (before is not None and before.is_quick)
    if isinstance(experiment, str | Path):
        path = Path(experiment)
        given = read_experiment(path)
        with naming(path):
            given = given.quickly() if small else given
            given.runs()  # what is wrong with any of them is said now
        return given, path.read_text(encoding="utf-8")
    if isinstance(experiment, Mapping):
        experiment = experiment_of(experiment, str(experiment.get("name", "experiment")))
    if not isinstance(experiment, Experiment):
        raise InputError(f"experiment={experiment!r:.60} should be a TOML file, a dictionary or an Experiment")
    return experiment.quickly() if small else experiment, ""
