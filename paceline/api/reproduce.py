"""`paceline.reproduce`: a published study made again, with its own figures beside ours."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from paceline.api.settings import as_optional_path
from paceline.errors import InputError

if TYPE_CHECKING:
    from paceline import data
    from paceline.experiment.watcher import ExperimentWatcher
    from paceline.reproduction.study import Reproduced


def reproduce(
    study: str | None = None,
    *,
    quick: bool = False,
    out: str | Path | None = None,
    resume: str | Path | None = None,
    jobs: int = 1,
    retry: bool = False,
    data_dir: str | Path | None = None,
    watcher: ExperimentWatcher | None = None,
    downloads: data.Progress | None = None,
) -> Reproduced:
    """Repeat a published study, compare the results with its figures, and write a report.

    `study` is a name from `paceline.studies()`. `quick` makes a small version, in minutes on two cores. The rest is as
    for `paceline.compare`: the study is kept in `out` or runs/NAME-N, and `resume=` continues one.

    >>> made = paceline.reproduce("scaling", quick=True, out="runs/scaling")
    >>> made.page.name, len(made.table.rows) > 0
    ('report.html', True)
    """
    from paceline.experiment.executing import execute
    from paceline.reproduction.study import reproduced, to_make

    if study is not None and not isinstance(study, str):
        raise InputError(f"study={study!r:.60} should be a name, see paceline.studies()")
    before, cache = as_optional_path(resume, "resume"), as_optional_path(data_dir, "data_dir")
    if out is not None and before is not None:
        raise InputError("`out` and `resume` cannot be combined: what is resumed stays in its directory")
    chosen, experiment = to_make(study, quick=quick, resume=before, cache=cache)
    found = execute(
        experiment, out=as_optional_path(out, "out"), resume=before, jobs=jobs, retry=retry, cache=cache,
        progress=downloads, watcher=watcher, text="" if before else chosen.text, verb="reproduce",
    )  # fmt: skip
    return reproduced(chosen, found)
