"""`paceline measure`: where the time of an iteration goes, layer by layer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paceline.cli.console import JsonOption, console_for, output_json, warn_if_busy
from paceline.cli.options import DataDirOption, OutOption, of_workload, takes_settings
from paceline.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from paceline.measurement.measurement import LayerTime, Measurement
    from paceline.workload import Workload

EXAMPLE = "Example: paceline measure alexnet --batch 8 --iterations 100 --out runs/alexnet-time"


@takes_settings("measure")
def measure(
    workload: Annotated[str | None, typer.Argument(help="As for train.")] = None,
    links: Annotated[bool, typer.Option("--links", help="Measure this machine's links instead of a workload.")] = False,
    load: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Show a saved measurement again, without running.")
    ] = None,
    out: OutOption = None,
    data_dir: DataDirOption = None,
    json: JsonOption = None,
    *,
    given: dict[str, Any],
) -> None:
    """Measure every layer's forward, backward and update time."""
    from paceline.record import dump
    from paceline.training.settings import RunSettings
    from paceline.workload import resolve

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
        own, others = of_workload(given)
        options = {"iterations": RunSettings.iterations, "data_dir": data_dir, "out": out, **others}
        found = _measure(resolve(workload, own), options, console)
    show(found, console)
    warn_if_busy(found.conditions.get("busy", ""))
    if out is not None:
        console.print(f"page, tables, trace and plots: {out}", markup=False)
    output_json(dump(found), json)


def _load(place: Path, out: Path | None) -> Measurement:
    """A saved measurement; its tables and plots are written again."""
    from paceline.measurement.measurement import Measurement
    from paceline.record import load
    from paceline.reporting.measurement_files import write_tables

    found = load(place / "measurement.json" if place.is_dir() else place)
    if not isinstance(found, Measurement):
        raise InputError(f"{place} holds a {type(found).__name__.lower()}, not a measurement")
    home = place if place.is_dir() else place.parent
    write_tables(found, out or home, saved=home)
    return found


def _measure_links(device: str, console: Console, json: str | None) -> None:
    from rich.table import Table

    from paceline.api.measure import measure_links
    from paceline.record import dump

    found = measure_links(device)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("link")
    table.add_column("latency", justify="right")
    table.add_column("bandwidth", justify="right")
    for speed in found.links:
        table.add_row(speed.link, f"{1e6 * speed.latency_s:.1f} µs", f"{speed.bandwidth / 1e9:.2f} GB/s")
    console.print(table)
    output_json(dump(found), json)


def _measure(workload: Workload, options: dict[str, Any], console: Console) -> Measurement:
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from paceline.api.measure import measure as run

    columns = (TextColumn("measuring"), BarColumn(bar_width=24), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=options["iterations"])
        return run(workload, watch=lambda done, _: bar.update(task, completed=done), **options)


def show_parts(measurements: list[tuple[str, Measurement]], console: Console) -> None:
    """One row per measurement with the parts of an iteration."""
    from rich.table import Table

    from paceline.formatting import percent
    from paceline.measurement.mark_log import PARTS

    table = Table(box=None, pad_edge=False, header_style="bold")
    parts = [part for part in PARTS if any(m.parts_s.get(part, 0.0) > 0 for _, m in measurements)]
    for column in ("", "iteration ms", *parts, "accounted", "scale"):
        table.add_column(column, justify="right" if column else "left", no_wrap=True)
    for name, m in measurements:
        total = sum(m.parts_s.values()) or 1.0
        shares = [percent(m.parts_s[part] / total, 1) for part in parts]
        table.add_row(name, f"{1e3 * m.iteration_s.median_s:.3f}", *shares, f"{m.accounted:.3f}", f"{m.scale:.3f}")
    console.print(table, markup=False)


def show(m: Measurement, console: Console) -> None:
    """Prints the measurement as a table, with advice."""
    from paceline.formatting import percent
    from paceline.measurement.advice import advice

    i = m.iteration_s
    console.print(f"step {m.conditions.get('step', m.step)}", markup=False)
    console.print(
        f"{m.name} at batch {m.batch} on {m.device_name} ({m.device}): "
        f"{ms(i.median_s)} ms per iteration (10th to 90th percentile: {ms(i.p10_s)} to {ms(i.p90_s)} ms)",
        markup=False,
    )
    total = sum(m.parts_s.values()) or 1.0
    console.print(_layer_table(m.layers, total), markup=False, soft_wrap=False)
    console.print("times in ms; *: the update of all layers at once, apportioned by bytes", markup=False)
    if m.eager_layers:
        console.print(
            f"the compiled step runs as one unit; layers of the plain step ({ms(m.eager_s)} ms):", markup=False
        )
        console.print(_layer_table(m.eager_layers, m.eager_s), markup=False, soft_wrap=False)
    parts = "  ".join(f"{part} {percent(seconds / total, 1)}" for part, seconds in m.parts_s.items() if seconds > 0)
    console.print(f"parts: {parts}", markup=False)
    if m.hidden_communication_s:
        console.print(f"communication hidden behind computing: {ms(m.hidden_communication_s)} ms", markup=False)
    console.print(
        f"accounted {m.accounted:.3f}  scale {m.scale:.3f}  overhead {percent(m.overhead, 1)}  "
        f"sampled {m.sampled} of {m.iterations} iterations; "
        f"device peak {m.device_flops / 1e9:.0f} GFLOP/s and {m.device_bytes / 1e9:.1f} GB/s",
        markup=False,
    )
    for sentence in advice(m):
        console.print(f"- {sentence}", markup=False)


def ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3f}"


def _layer_table(layers: tuple[LayerTime, ...], total_s: float) -> Table:
    from rich.table import Table

    from paceline.formatting import percent

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("layer", "kind", "forward", "backward", "update", "share", "GFLOP/s", "GB/s"):
        table.add_column(column, justify="left" if column in ("layer", "kind") else "right", no_wrap=True)
    for layer in layers:
        if layer.total_s < 5e-4 * total_s:
            continue
        table.add_row(
            layer.name, layer.kind, ms(layer.forward_s.median_s), ms(layer.backward_s.median_s),
            ms(layer.update_s.median_s) + ("*" if layer.update_apportioned and layer.parameters else ""),
            percent(layer.total_s / total_s, 1), f"{layer.achieved_flops / 1e9:.1f}",
            f"{layer.achieved_bytes / 1e9:.1f}",
        )  # fmt: skip
    return table
