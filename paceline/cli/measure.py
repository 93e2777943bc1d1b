"""`paceline measure`: where the time of an iteration goes, layer by layer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from paceline.api.measure import measure as run
from paceline.api.measure import measure_links
from paceline.cli.console import JsonOption, console_for, output_json, progress_bar, rows_table
from paceline.cli.options import WORKLOAD, DataDirOption, OutOption, flag, path_option, takes_settings
from paceline.errors import InputError
from paceline.formatting import percent
from paceline.measurement.advice import advice
from paceline.measurement.measurement import Measurement
from paceline.record import dump, load_as
from paceline.trace import PARTS

EXAMPLE = "Example: paceline measure alexnet --batch 8 --iterations 100 --out runs/alexnet-time"


@takes_settings("measure")
def measure(
    given: dict[str, Any],
    workload: Annotated[str | None, typer.Argument(metavar="WORKLOAD", help=WORKLOAD)] = None,
    links: Annotated[bool, flag("links", "Measure this machine's links instead of a workload.")] = False,
    load: Annotated[Path | None, path_option("Show a saved measurement instead of running one.")] = None,
    out: OutOption = None,
    data_dir: DataDirOption = None,
    json: JsonOption = None,
) -> None:
    """Measure the forward, backward and update time of every layer."""
    console = console_for(json)
    if [workload is not None, load is not None, links].count(True) != 1:
        raise InputError("name a workload to measure, or give --load FILE or --links: one of the three")
    if links:
        _measure_links(given.get("device", "auto"), console, json)
        return
    if load is not None:
        found = _load(load, out)
    else:
        assert workload is not None
        with progress_bar(console, "measuring") as advance:
            found = run(
                workload, data_dir=data_dir, out=out, watch=lambda done, total: advance(done / total), **given
            )  # fmt: skip
    show(found, console)
    if out is not None:
        console.print(f"page, tables, trace and plots: {out}")
    output_json(dump(found), json)


def _load(place: Path, out: Path | None) -> Measurement:
    """Loads a saved measurement and writes its tables and plots again."""
    from paceline.reporting.record_files import write_tables

    found = load_as(place / "measurement.json" if place.is_dir() else place, Measurement, InputError)
    home = place if place.is_dir() else place.parent
    write_tables(found, out or home, saved=home)
    return found


def _measure_links(device: str, console: Console, json: str | None) -> None:
    found = measure_links(device)
    rows = [
        {
            "link": speed.link, "latency": f"{1e6 * speed.latency_s:.1f} µs",
            "bandwidth": f"{speed.bandwidth / 1e9:.2f} GB/s",
        }
        for speed in found.links
    ]  # fmt: skip
    console.print(rows_table(rows, left=("link",)))
    output_json(dump(found), json)


def show_parts(measurements: list[tuple[str, Measurement]], console: Console) -> None:
    parts = [part for part in PARTS if any(m.parts_s.get(part, 0.0) for _, m in measurements)]
    rows = []
    for name, m in measurements:
        whole_s = m.iteration_s.mean_s or 1.0
        shares = {part: percent(m.parts_s.get(part, 0.0) / whole_s, 1) for part in parts}
        mean = f"{1e3 * m.iteration_s.mean_s:.3f}"
        rows.append({"": name, "iteration ms": mean, **shares, "accounted": f"{m.accounted:.3f}"})
    console.print(rows_table(rows, left=("",)))


def show(m: Measurement, console: Console) -> None:
    console.print(str(m))
    for sentence in advice(m):
        console.print(f"- {sentence}")
