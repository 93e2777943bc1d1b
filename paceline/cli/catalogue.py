"""`paceline catalogue`: the known devices, links, machines and prices, or those that a file describes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer
from rich.console import Console

from paceline.api.listing import machine_row
from paceline.cli.console import JsonOption, console_for, output_json, output_listing, rows_table
from paceline.cluster import machines_of, price_table, read_cluster, read_skypilot
from paceline.errors import InputError, nearest
from paceline.formatting import count
from paceline.record import to_json

EXAMPLE = "Example: paceline catalogue machines"
ROWS = 40  # machines of a file that are shown; the JSON has all
NOTES = {
    "devices": "TFLOP/s at most, without sparsity; GB/s of memory. -- : not on the data sheet.",
    "machines": "Gb/s of the network. Prices are approximate, as of their date, many unchecked (sources are in the "
    "JSON): put your own into cluster.toml.",
}


def catalogue(
    what: Annotated[
        str,
        typer.Argument(
            metavar="WHAT", help="devices, links, machines or prices; or a file: a cluster.toml or SkyPilot's vms.csv."
        ),
    ] = "machines",
    json: JsonOption = None,
) -> None:
    """List the known devices, links and machines with dated prices, or check a file of your own."""
    from paceline.api import listing

    known: dict[str, Callable[[], listing.Listing[Any]]] = {
        "devices": listing.devices, "links": listing.links, "machines": listing.machines,
    }  # fmt: skip
    console = console_for(json)
    if what in known:
        output_listing(known[what](), json)
        if what in NOTES:
            console.print(NOTES[what])
    elif what == "prices":
        output_json(_prices(console), json)
    elif what.endswith(".toml"):
        output_json(_cluster(what, console), json)
    elif what.endswith(".csv"):
        output_json(_skypilot(what, console), json)
    else:
        names = (*known, "prices")
        raise InputError(f"no catalogue {what!r}, nor a file that ends in .toml or .csv: {nearest(what, names)}")


def _prices(console: Console) -> list[Any]:
    """The price table published in 2017, computed from the catalogue's prices."""
    rows = [
        {
            "machine": row.machine.name, "machines": row.instances, "vCPUs": row.vcpus,
            "GiB": row.memory_bytes / 2**30, "GPUs": row.gpus, "GPU GiB": row.gpu_memory_bytes / 2**30,
            "US$/hour": f"{row.per_year / 8760:.4f}", "US$/year": f"{row.per_year:,.2f}",
            "published": f"{row.printed_per_year:,.2f}", "US$ per GPU hour": row.gpu_per_hour,
        }
        for row in price_table()
    ]  # fmt: skip
    console.print(rows_table(rows, left=("machine",)), soft_wrap=False)
    console.print("August 2017, 8760 hours per year; prices of today's machines: paceline catalogue machines")
    keys = ("instances", "vcpus", "memory_bytes", "gpus", "gpu_memory_bytes", "per_year", "printed_per_year")
    return [
        {"machine": to_json(row.machine), **{key: getattr(row, key) for key in (*keys, "gpu_per_hour")}}
        for row in price_table()
    ]


def _cluster(path: str, console: Console) -> Any:
    cluster = read_cluster(path)
    rows = [{"number": each.count, **machine_row(each.machine)} for each in cluster.machines]
    console.print(rows_table(rows), soft_wrap=False)
    said = [count(cluster.machine_count, "machine"), count(cluster.count("gpu"), "GPU")]
    said += [f"{cluster.network.name} between them"] if cluster.network else []
    if cluster.price_per_hour is not None:
        said.append(f"{cluster.price_per_hour:,.4f} {cluster.machines[0].machine.currency} per hour in total")
    console.print(f"{cluster.name}: {', '.join(said)}")
    return to_json(cluster)


def _skypilot(path: str, console: Console) -> dict[str, Any]:
    found = read_skypilot(path)
    machines = machines_of(found.offers)
    console.print(rows_table(map(machine_row, machines[:ROWS])), soft_wrap=False)
    shown = f", {ROWS} of them shown" if len(machines) > ROWS else ""
    rows, known = count(len(found.offers), "row"), count(len(machines), "machine")
    console.print(f"{rows}; {known} with devices of the catalogue{shown}")
    if found.refused_count:
        console.print(f"{count(found.refused_count, 'row')} could not be read:")
        for line in found.refused:
            console.print(f"  {line}")
    return {
        "machines": to_json(machines), "offers": to_json(found.offers), "refused": list(found.refused),
        "refused_count": found.refused_count,
    }  # fmt: skip
