"""`paceline plan`: which machines, how many, and how to distribute, for a deadline, a budget or an accuracy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from paceline.api.plan import FILE, PAGE
from paceline.api.plan import plan as run
from paceline.cli.console import JsonOption, console_for, output_json, rows_table
from paceline.cli.options import WORKLOAD, OutOption, flag, option, takes_settings
from paceline.errors import PacelineError
from paceline.formatting import percent
from paceline.record import dump

if TYPE_CHECKING:
    from paceline.planning.plan import Alternative, Plan

EXAMPLE = "Example: paceline plan resnet50 --data synthetic:3x224x224/1000:1281167 --epochs 90 --deadline 3d"
ROWS = 16


@takes_settings("plan")
def plan(
    given: dict[str, Any],
    workload: Annotated[str, typer.Argument(metavar="WORKLOAD", help=WORKLOAD)],
    cluster: Annotated[
        str, option("A cluster.toml, machine names, catalogue (all machines) or here (this machine).", "FILE|NAMES")
    ] = "catalogue",
    epochs: Annotated[float | None, option("Number of epochs to plan for; default: the workload's.", "N")] = None,
    target_accuracy: Annotated[
        str | None, option("Train to this test accuracy instead, e.g. 0.97 or 97%.", "A")
    ] = None,
    deadline: Annotated[
        str | None, option("Find the cheapest plan that takes at most this long, e.g. 90min, 24h or 2d.", "TIME")
    ] = None,
    budget: Annotated[
        str | None, option("Find the fastest plan that costs at most this much, e.g. 500.", "AMOUNT")
    ] = None,
    spot: Annotated[bool, flag("spot", "Use spot prices.")] = False,
    strategies: Annotated[
        str | None, option("Consider only these strategies, e.g. sync,downpour,local-sgd or module:name.", "NAMES")
    ] = None,
    out: OutOption = None,
    json: JsonOption = None,
) -> None:
    """Choose machines, a strategy and a batch size that meet a deadline, a budget or an accuracy."""
    console = console_for(json)
    with console.status("planning"):
        made = run(
            workload, cluster, epochs=epochs, target_accuracy=target_accuracy, deadline=deadline, budget=budget,
            spot=spot, strategies=strategies, out=out, **given,
        )  # fmt: skip
    _show(made, console)
    if out is not None:
        console.print(f"saved to {out / FILE}; train with: paceline train --plan {out / FILE}")
        if made.pick.candidate.copies > 1 and not made.pick.candidate.is_divided:
            console.print(f"on a cluster: paceline deploy kubernetes {out} (or slurm, skypilot, compose)")
        console.print(f"page: {out / PAGE}")
    output_json(dump(made), json)
    if not made.met:
        raise PacelineError(made.reasons[0])


def _show(made: Plan, console: Console) -> None:
    from paceline.planning.machine_options import MACHINE_HOURS

    samples = made.prediction.samples
    console.print(
        f"{made.workload.network} on {made.workload.data}, {samples:,} samples per epoch; "
        f"{made.candidates:,} candidates of {made.cluster}, {made.conditions['simulated']} of them simulated"
    )
    rows = [_row(one, made) for one in _rows(made)]
    console.print(rows_table(rows, left=("", "machines", "strategy", "precision"), wrap=True), soft_wrap=False)
    if len(made.front) > ROWS:
        console.print(f"… and {len(made.front) - ROWS} more, in the JSON")
    console.print(f"\npick: {made.pick}")
    for reason in made.reasons:
        console.print(f"  - {reason}")
    for reason, number in made.excluded.items():
        console.print(f"  left out: {number:,} {reason}")
    prices = "" if made.currency == MACHINE_HOURS else f"prices of {made.conditions['prices of']}; "
    console.print(f"  {prices}predictions: {made.prediction.basis}")


def _rows(made: Plan) -> list[Alternative]:
    """At most ROWS alternatives, fastest first, always with the pick."""
    shown = made.shown
    kept = {round(i * (len(shown) - 1) / (ROWS - 2)) for i in range(ROWS - 1)} | {shown.index(made.pick)}
    return [one for i, one in enumerate(shown) if i in kept or len(shown) <= ROWS]


def _row(one: Alternative, made: Plan) -> dict[str, str]:
    from paceline.planning.reasons import amount_words, batches_words, time_words

    candidate, groups = one.candidate, one.candidate.strategy.groups or 1
    strategy = one.method or "--"
    if groups > 1:
        strategy += f" {groups}x{candidate.workers // groups}"
    return {
        "": "*" if one == made.pick else "",
        "machines": f"{one.machines} × {candidate.machine}" if one.machines > 1 else candidate.machine,
        "workers": f"{candidate.workers:,}", "strategy": strategy, "batch": f"{candidate.batch:,}",
        "precision": candidate.precision,
        **({"epochs": f"{one.epochs:.3g}"} if made.objective.target_accuracy is not None else {}),
        "time": time_words(one.time_s), made.currency: amount_words(one.money),
        "batches in flight": batches_words(one.in_flight), "computing": percent(one.computing_share, 0),
    }  # fmt: skip
