"""`paceline calibrate`: a few minutes of short trials, after which this machine's times can be predicted."""

from __future__ import annotations

from itertools import product
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from paceline import busy_machine
from paceline.api.calibrate import CALIBRATION
from paceline.api.calibrate import calibrate as run
from paceline.cli.console import (
    JsonOption,
    check_place,
    console_for,
    output_json,
    progress_bar,
    rows_table,
    warn_if_busy,
)
from paceline.cli.options import OUTPUT, WORKLOAD, flag, option, path_option, takes_settings
from paceline.cost.families import FAMILIES
from paceline.errors import InputError
from paceline.formatting import percent
from paceline.record import dump
from paceline.workload import Workload, resolve

if TYPE_CHECKING:
    from paceline.cost.calibration import Calibration

EXAMPLE = "Example: paceline calibrate && paceline predict alexnet --batch 64"

_SHOWN = {
    "matmul": "matrix products", "convolution": "convolutions", "convolution_backward": "convolutions, backward",
    "batch_norm": "batch norms", "recurrent": "LSTMs", "attention": "attention", "add": "elementwise",
}  # fmt: skip


@takes_settings("calibrate")
def calibrate(
    workload: Annotated[
        str | None,
        typer.Argument(
            metavar="WORKLOAD",
            help="Also time each operation of this workload, one at a time, for more accurate predictions of it (CPU). "
            f"{WORKLOAD}",
        ),
    ] = None,
    device: Annotated[str, option("auto, cpu, cuda or cuda:N.")] = "auto",
    precision: Annotated[list[str] | None, option("tf32 or bfloat16, in addition to float32; can be repeated.")] = None,
    local_workers: Annotated[
        bool, flag("local-workers", "Also measure the exchange between local workers (takes two more minutes).")
    ] = False,
    quick: Annotated[bool, flag("quick", "Run a seventh of the trials: about half a minute, less accurate.")] = False,
    address: Annotated[
        str | None,
        option(
            "Only measure the network between the nodes of this Ray cluster, and add it to the calibration.",
            "HOST:PORT",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="Seed of the sampled sizes.")] = 0,
    out: Annotated[
        Path | None, path_option("Directory or .json file; default: where predict looks for it.", "DIR|FILE", OUTPUT)
    ] = None,
    resume: Annotated[
        Path | None,
        path_option("Save each part in this directory; continue an interrupted calibration.", "DIR", OUTPUT),
    ] = None,
    minutes: Annotated[
        float | None, option("Start no further part after this many minutes; needs --resume.", "N")
    ] = None,
    refine: Annotated[
        Path | None,
        path_option("Keep the trials of an earlier calibration of this device, and add a third as many.", "FILE"),
    ] = None,
    json: JsonOption = None,
    *,
    given: dict[str, Any],
) -> None:
    """Time the operations and links of this machine, so that predict, plan and simulate can use it."""
    from paceline.cost.calibrations import calibration_path

    if out is not None:
        out = out if out.suffix == ".json" else out / CALIBRATION
        check_place(out, "--out")
    console, timed = console_for(json), _resolved(workload, given)
    if address is not None:
        found = run(device, address=address, out=out, workload=timed)
        console.print(_network_words(found))
        output_json(dump(found), json)
        return
    busy = busy_machine.busy_now()
    with progress_bar(console, "calibrating", busy) as watch:
        found = run(
            device, precision=precision or (), local_workers=local_workers, quick=quick, seed=seed, out=out,
            resume=resume, minutes=minutes, refine=refine, watch=watch, workload=timed,
        )  # fmt: skip
    path = out or calibration_path(found.device_name)
    console.print(_table(found))
    off = "" if isnan(found.residual) else f", median error {percent(found.residual, 1)} on held-out sizes"
    noise = f"noise of the machine {percent(found.probe_spread, 1)}"
    console.print(f"{found.device_name}: {found.conditions['trials']} trials{off}; {noise}")
    if found.own is not None:
        console.print(f"operations of {found.own.workload} timed one at a time", highlight=False)
    if "took" in found.conditions:
        console.print(f"measuring took: {found.conditions['took']}")
    if found.compiled:
        said = ", ".join(f"{kind} {each.ratio:.2f}" for kind, each in found.compiled.items() if kind != "any")
        console.print(f"compiled steps take, relative to others: {said}")
    if "compiled" in found.conditions:
        console.print(found.conditions["compiled"])
    if not busy:
        warn_if_busy(found.conditions.get("busy", ""))
    console.print(f"calibration: {path}")
    output_json(dump(found), json)


def _resolved(workload: str | None, given: dict[str, Any]) -> Workload | None:
    if workload is None and given:
        raise InputError(f"--{next(iter(given))} is a setting of a workload: name one, e.g. paceline calibrate lenet5")
    return None if workload is None else resolve(workload, given)


def _network_words(found: Calibration) -> str:
    from paceline.cost.this_machine import node_link

    link = node_link(found)
    assert link is not None
    return f"{link.name}: {1e3 * link.latency_s:.2f} ms, {8e-9 * link.bandwidth:.2f} Gb/s"


def _table(found: Calibration) -> Table:
    rows = []
    for each, (family, words) in product(found.sets, _SHOWN.items()):
        size_bytes = 2 if each.precision == "bfloat16" else 4
        if work := [(FAMILIES[family].work_of(t.sizes), t.seconds) for t in each.trials if t.family == family]:
            rows.append({
                "operations": words, "precision": each.precision, "threads": str(each.threads or ""),
                "trials": len(work), "peak GFLOP/s": f"{max(flops / s for (flops, _), s in work) / 1e9:,.0f}",
                "peak GB/s": f"{max(size_bytes * moved / s for (_, moved), s in work) / 1e9:,.0f}",
                "shortest": f"{1e6 * min(s for _, s in work):.1f} µs",
            })  # fmt: skip
    return rows_table(rows, left=("operations",))
