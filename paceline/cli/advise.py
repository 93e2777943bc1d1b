"""`paceline advise`: a network, its settings and how to train it, for a described task."""

from __future__ import annotations

import math
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from paceline.advice.task import TASKS, TaskDescription
from paceline.api.advise import FILE, PAGE, TRIALS, WORKLOAD
from paceline.api.advise import advise as run
from paceline.cli.console import JsonOption, console_for, output_json, rows_table
from paceline.cli.options import OutOption, flag, takes_settings
from paceline.cli.questions import ask_task
from paceline.errors import InputError, PacelineError
from paceline.formatting import duration
from paceline.output_directory import given_or_next
from paceline.record import dump

if TYPE_CHECKING:
    from paceline.advice.advice import Advice, TriedCandidate

EXAMPLE = "Example: paceline advise classify --data digits --error 5% --time 2min --try --out advice/digits"


@takes_settings("advise", TaskDescription)
def advise(
    given: dict[str, Any],
    task: Annotated[
        str | None,
        typer.Argument(
            metavar="TASK", help=f"{', '.join(TASKS)}, or a TOML file. Without a task, the terminal asks questions.",
            autocompletion=lambda: list(TASKS),
        ),
    ] = None,
    try_out: Annotated[bool, flag("try", "Train candidates, shallow first, until the error is acceptable.")] = False,
    out: OutOption = None,
    json: JsonOption = None,
) -> None:  # fmt: skip
    """Choose a network, its size and its training settings for a described task, and write a workload file."""
    console = console_for(json)
    if task is None:
        if given or not (sys.stdin.isatty() and console.is_terminal):
            raise InputError(f"name a task: {', '.join(TASKS)}, or a TOML file that describes it")
        task, given = ask_task(console)

    def tell(trial: TriedCandidate, name: str) -> None:
        from paceline.advice.trying import trial_words

        console.print(f"tried {trial_words(trial, name)}")

    with given_or_next(out, f"advice-{Path(task).stem}") as place, console.status("advising"):
        made = run(task, try_out=try_out, out=place, on_trial=tell, **given)
    from paceline.advice.advice import STAND_IN_NOTE

    _show(made, console)
    console.print(f"\nsaved to {place / WORKLOAD}; train with: {made.train_command(place / WORKLOAD)}")
    if made.stand_in:
        console.print(f"its data: {STAND_IN_NOTE}")
    runs = f"   runs: {place / TRIALS}" if made.trials else ""
    console.print(f"advice: {place / FILE}   page: {place / PAGE}{runs}")
    output_json(dump(made), json)
    if not made.met:
        raise PacelineError(f"no candidate is good enough: {made.choice('network').reason}")


def _show(made: Advice, console: Console) -> None:
    width = max(len(each.topic) for each in made.choices)
    for each in made.choices:
        time = f"  [{duration(each.predicted_s)}]" if math.isfinite(each.predicted_s) else ""
        console.print(f"{each.topic.ljust(width)}  {each.value}{time}")
        for line in textwrap.wrap(each.reason, max(40, console.width - width - 4)):
            console.print(f"{' ' * (width + 4)}{line}")
    if math.isfinite(made.predicted_s):
        interval = f"90 % interval: {duration(made.low_s)} to {duration(made.high_s)}"
        console.print(f"{'time'.ljust(width)}  {duration(made.predicted_s)} predicted ({interval})")
    if basis := "; ".join(f"{name}: {value}" for name, value in made.conditions.items()):
        console.print(basis)
    from paceline.advice.advice import error_words

    rows = [
        {
            "": "*" if row["chosen"] else "", "network": row["network"], "options": row["options"],
            made.error_name: error_words(row[made.error_name], made.error_name), "time": duration(row["wall_s"]),
            "predicted": duration(row["predicted_s"]), "status": row["status"],
        }
        for row in made.trial_table()
    ]  # fmt: skip
    if rows:
        console.print()
        console.print(rows_table(rows, left=("", "network", "options", "status"), wrap=True), soft_wrap=False)
