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
    from paceline.cost.verification import Comparison, Verification

EXAMPLE = "Example: paceline verify runs/lenet"
LEAST_SHARE = 0.01
"""Of an iteration; the times of smaller layers are added up."""


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
        for row in _shown(made)
    ]  # fmt: skip
    console.print(rows_table(rows, left=("", "kind", "covered")), soft_wrap=False)
    covered, total = made.coverage
    for row in made.of_kind("iteration")[:1]:
        inside = {True: "inside the interval", False: "outside the interval", None: "no interval was given"}[row.within]
        console.print(
            f"{row.name}: {signed_percent(row.error)}, {inside}; {covered} of {total} intervals cover the measured time"
        )


def _shown(made: Verification) -> list[Comparison]:
    """The rows of the table: the sum of the smaller layers comes after the others."""
    from paceline.cost.verification import compared

    rows = list(made.notable(LEAST_SHARE))
    small = [row for row in made.of_kind("layer") if row not in rows]
    if small:
        sums_s = [sum(getattr(row, f"{side}_s") for row in small) for side in ("predicted", "measured")]
        last = max((n for n, row in enumerate(rows) if row.kind == "layer"), default=len(rows) - 1)
        rows.insert(last + 1, compared(f"({count(len(small), 'smaller layer')})", "layer", *sums_s))
    return rows
