"""`paceline verify`: was the prediction right? Predicted beside measured times."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from paceline.api.verify import verify as compare
from paceline.cli.console import JsonOption, console_for, output_json, rows_table
from paceline.cli.options import TrustOption, option, path_option
from paceline.formatting import count, duration, signed_percent
from paceline.record import dump

if TYPE_CHECKING:
    from paceline.cost.verification import Verification

EXAMPLE = "Example: paceline verify runs/lenet"
LEAST_SHARE = 0.005  # of an iteration; smaller layers are only in the JSON


def verify(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Directory of a run or of a measurement.")],
    device: Annotated[
        str | None,
        option("If no prediction was saved: predict for this device, a calibration file or a catalogue name."),
    ] = None,
    prediction: Annotated[
        Path | None, path_option("Verify this prediction or plan instead of the one saved with the run.", "FILE")
    ] = None,
    trust: TrustOption = False,
    json: JsonOption = None,
) -> None:
    """Compare predicted and measured times, part by part and layer by layer."""
    what = (run,) if prediction is None else (prediction, run)
    made = compare(*what, device=device, trust=trust)
    show(made, console_for(json))
    output_json(dump(made), json)


def show(made: Verification, console: Console) -> None:
    p = made.prediction
    threads = f", {count(p.threads, 'thread')}" if p.threads else ""
    console.print(
        f"{made.name} at batch {made.batch} on {made.device}, step {made.step}, {p.precision}{threads} ({p.basis})"
    )
    if not made.saved:
        console.print("no prediction was saved: predicted now from the run's workload, device and step")
    for note in made.notes:
        console.print(f"note: {note}")
    rows = [
        {
            "": row.name, "kind": row.kind, "predicted": duration(row.predicted_s),
            "interval": f"{duration(row.low_s)} to {duration(row.high_s)}" if math.isfinite(row.low_s) else None,
            "measured": duration(row.measured_s), "error": signed_percent(row.error), "covered": row.within,
        }
        for row in made.notable(LEAST_SHARE)
    ]  # fmt: skip
    console.print(rows_table(rows, left=("", "kind", "covered")), soft_wrap=False)
    covered, total = made.coverage
    for row in made.of_kind("iteration")[:1]:
        inside = {True: "inside the interval", False: "outside the interval", None: "no interval was given"}[row.within]
        console.print(
            f"{row.name}: {signed_percent(row.error)}, {inside}; {covered} of {total} intervals cover the measured time"
        )
