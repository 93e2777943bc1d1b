"""`paceline.advise`: a network, its settings and how to train it, for a task that is only described."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.advice.task import TaskDescription, describe_task
from paceline.api.settings import as_optional_path
from paceline.errors import InputError

if TYPE_CHECKING:
    from paceline.advice.advice import Advice, TriedCandidate

FILE, WORKLOAD, PAGE, TRIALS = "advice.json", "workload.toml", "summary.html", "trials"


def advise(
    task: str | Path | TaskDescription,
    *,
    try_out: bool = False,
    out: str | Path | None = None,
    on_trial: Callable[[TriedCandidate, str], None] | None = None,
    **settings: Any,
) -> Advice:
    """Advise on a task: which network, of what size, trained with which settings, and why.

    `task` is "classify", "generate", "generate-to-spec", "compress" or "sequence", or a TOML file that has it and more.
    Settings are `data`, or instead of it `kind` ("image", "audio", "table", "text" or "trees"), `shape`, `samples`,
    `labels` and `classes`; an acceptable `error`; the `time` at hand; `device` (names of the catalogue, or "here"),
    `devices` and `link`. Every choice has its reason, and a predicted time where the cost model knows the device.

    With `try_out=True`, candidates are trained on `data`, the cheapest first, until the test error of one is at most
    `error` or the `time` (10 minutes by default) is over; `met` says whether one reached it. `on_trial` is called after
    each with the trial and the name of its error.

    `out` is a new directory for workload.toml, which `paceline.train` takes, advice.json, a page, and the runs of
    candidates in trials/. `toml` of the result is the text of that file.

    >>> advice = paceline.advise("classify", kind="table", shape="30", samples=5000, classes=2, device="H200")
    >>> advice.family, advice.workload.network, advice.choice("parallelism").value
    ('feed-forward', 'mlp', 'none')
    """
    from paceline.advice.advising import Consultation
    from paceline.output_directory import check_new

    place = as_optional_path(out, "out")
    if place is not None:
        check_new(place)
    if isinstance(task, TaskDescription):
        if settings:
            raise InputError(
                f"{next(iter(settings))} belongs into the TaskDescription: give the task by name to set it here"
            )
        described = task
    elif isinstance(task, str | Path):
        described = describe_task(task, settings)
    else:
        raise InputError(f"task={task!r:.60} should be a task such as 'classify', a TOML file or a TaskDescription")
    asked = Consultation.of(described)
    if try_out:
        from paceline.advice.trying import try_candidates
        from paceline.api.train import train

        made = try_candidates(
            asked, train, None if place is None else place / TRIALS, on_trial or (lambda trial, name: None)
        )
    else:
        made = asked.advise()
    if place is not None:
        _write(made, place)
    return made


def _write(made: Advice, place: Path) -> None:
    from paceline.output_directory import writable
    from paceline.record import save, write_atomically
    from paceline.reporting.page import write_records
    from paceline.results.records import find_records

    with writable(f"`out={str(place)!r}`"):
        save(made, place / FILE)
        write_atomically(place / WORKLOAD, made.toml)
        write_records(find_records([place]), place / PAGE)
