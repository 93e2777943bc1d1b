"""`paceline measure`: where the time of an iteration goes, layer by layer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paceline.cli.console import JsonOption, console_for, output_json, progress_bar, warn_if_busy
from paceline.cli.options import DataDirOption, OutOption, takes_settings
from paceline.cli.tables import rows_table
from paceline.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from paceline.measurement.measurement import LayerTime, Measurement

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
    from paceline.api.measure import measure as run
    from paceline.record import dump

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
    from paceline.api.measure import measure_links
    from paceline.record import dump

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
    """One row per measurement with the parts of an iteration."""
    from paceline.formatting import percent
    from paceline.measurement.mark_log import PARTS

    parts = [part for part in PARTS if any(m.parts_s.get(part, 0.0) > 0 for _, m in measurements)]
    rows = []
    for name, m in measurements:
        total = sum(m.parts_s.values()) or 1.0
        shares = {part: percent(m.parts_s[part] / total, 1) for part in parts}
        ends = {"accounted": f"{m.accounted:.3f}", "scale": f"{m.scale:.3f}"}
        rows.append({"": name, "iteration ms": ms(m.iteration_s.median_s), **shares, **ends})
    console.print(rows_table(rows, left=("",)), markup=False)


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
    from paceline.formatting import percent

    rows = [
        {
            "layer": layer.name, "kind": layer.kind, "forward": ms(layer.forward_s.median_s),
            "backward": ms(layer.backward_s.median_s),
            "update": ms(layer.update_s.median_s) + "*" * (layer.update_apportioned and layer.parameters > 0),
            "share": percent(layer.total_s / total_s, 1), "GFLOP/s": f"{layer.achieved_flops / 1e9:.1f}",
            "GB/s": f"{layer.achieved_bytes / 1e9:.1f}",
        }
        for layer in layers
        if layer.total_s >= 5e-4 * total_s
    ]  # fmt: skip
    return rows_table(rows, left=("layer", "kind"))
