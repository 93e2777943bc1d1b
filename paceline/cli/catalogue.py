"""`paceline catalogue`: the devices, links, machines and prices that are known, or those that a file describes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paceline.cli.console import JsonOption, console_for, output_json

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from paceline.cluster import Device, Link, Machine

EXAMPLE = "Example: paceline catalogue machines"
ROWS = 40
"""Of a file of thousands of machines, so many are shown; JSON has all."""


def catalogue(
    what: Annotated[
        str,
        typer.Argument(help="devices, links, machines or prices; or a file: cluster.toml, or a vms.csv of SkyPilot's."),
    ] = "machines",
    json: JsonOption = None,
) -> None:
    """List known devices, links, machines and their dated prices, or check a file of one's own."""
    from paceline.errors import InputError, nearest

    known: dict[str, Callable[[Console], Any]] = {
        "devices": _devices,
        "links": _links,
        "machines": _machines,
        "prices": _prices,
    }
    console = console_for(json)
    if what in known:
        output_json(known[what](console), json)
    elif what.endswith(".toml"):
        output_json(_cluster(what, console), json)
    elif what.endswith(".csv"):
        output_json(_skypilot(what, console), json)
    else:
        raise InputError(f"no catalogue {what!r}, nor a file that ends in .toml or .csv: {nearest(what, known)}")


def _devices(console: Console) -> list[Any]:
    from paceline.cluster import known_devices
    from paceline.record import to_json

    devices = known_devices()
    console.print(_device_table(devices), soft_wrap=False, markup=False)
    console.print("TFLOP/s at most, without sparsity; GB/s of memory. -- : not on the data sheet.", markup=False)
    return [to_json(device) for device in devices]


def _links(console: Console) -> list[Any]:
    from paceline.cluster import known_links
    from paceline.record import to_json

    links = known_links()
    console.print(_link_table(links), soft_wrap=False, markup=False)
    return [to_json(link) for link in links]


def _machines(console: Console) -> list[Any]:
    from paceline.cluster import known_machines
    from paceline.record import to_json

    machines = known_machines()
    console.print(_machine_table((machine, None) for machine in machines), soft_wrap=False, markup=False)
    console.print(
        "Gb/s of the network. Prices are about what they were when seen, many unchecked (the JSON says which, and where"
        " from): write your own into cluster.toml.",
        markup=False,
    )
    return [to_json(machine) for machine in machines]


def _prices(console: Console) -> list[Any]:
    """The table of 2017 again, from the catalogue's prices."""
    from paceline.cluster import price_table
    from paceline.record import to_json

    table = _table(
        [
            "machine",
            "number",
            "vCPUs",
            "GiB",
            "GPUs",
            "GPU GiB",
            "US$ an hour",
            "US$ a year",
            "printed",
            "an hour of a GPU",
        ]
    )
    rows = []
    for row in price_table():
        an_hour = row.per_year / 8760
        table.add_row(
            row.machine.name, str(row.instances), str(row.vcpus), _gib(row.memory_bytes), str(row.gpus),
            _gib(row.gpu_memory_bytes), f"{an_hour:.4f}", f"{row.per_year:,.2f}", f"{row.printed_per_year:,.2f}",
            _or_not(row.gpu_per_hour, ".4f"),
        )  # fmt: skip
        rows.append(
            {
                **{
                    key: getattr(row, key) for key in ("instances", "vcpus", "memory_bytes", "gpus", "gpu_memory_bytes")
                },
                **{key: getattr(row, key) for key in ("per_year", "printed_per_year", "gpu_per_hour")},
                "machine": to_json(row.machine),
            }
        )
    console.print(table, soft_wrap=False, markup=False)
    console.print(
        "August 2017, 8760 hours a year; prices of today's machines: paceline catalogue machines", markup=False
    )
    return rows


def _cluster(path: str, console: Console) -> dict[str, Any]:
    from paceline.cluster import read_cluster
    from paceline.formatting import count
    from paceline.record import to_json

    cluster = read_cluster(path)
    console.print(
        _machine_table((each.machine, each.count) for each in cluster.machines), soft_wrap=False, markup=False
    )
    network = f", {cluster.network.name} between them" if cluster.network else ""
    price = (
        f", {_price(cluster.price_per_hour, cluster.machines[0].machine.currency)} an hour in all"
        if cluster.price_per_hour is not None
        else ""
    )
    machines, gpus = count(cluster.machine_count, "machine"), count(cluster.count("gpu"), "GPU")
    console.print(f"{cluster.name}: {machines}, {gpus}{network}{price}", markup=False)
    made: dict[str, Any] = to_json(cluster)
    return made


def _skypilot(path: str, console: Console) -> dict[str, Any]:
    from paceline.cluster import machines_of, read_skypilot
    from paceline.formatting import count
    from paceline.record import to_json

    found = read_skypilot(path)
    machines = machines_of(found.offers)
    console.print(_machine_table((machine, None) for machine in machines[:ROWS]), soft_wrap=False, markup=False)
    shown = f", {ROWS} of them shown" if len(machines) > ROWS else ""
    rows, known = count(len(found.offers), "row"), count(len(machines), "machine")
    console.print(f"{rows}; {known} with devices of the catalogue{shown}", markup=False)
    if found.refused_count:
        console.print(f"{count(found.refused_count, 'row')} could not be read:", markup=False)
        for line in found.refused:
            console.print(f"  {line}", markup=False)
    return {
        "machines": [to_json(machine) for machine in machines],
        "offers": to_json(found.offers),
        "refused": list(found.refused),
        "refused_count": found.refused_count,
    }


def _table(columns: list[str], left: tuple[str, ...] = ("machine",)) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, justify="left" if column in left else "right", overflow="fold")
    return table


def _device_table(devices: Iterable[Device]) -> Table:
    from paceline.cluster import PRECISIONS

    columns = ["device", "kind", "relative", "year", "cores", *PRECISIONS, "GiB", "GB/s"]
    table = _table(columns, left=("device", "kind", "relative"))
    for device in devices:
        peaks = [_or_not(device.peak_of(precision), ",.4g", 1e12) for precision in PRECISIONS]
        table.add_row(
            device.name, device.kind, device.relative, _or_not(device.year, "d"), _or_not(device.cores, "d"), *peaks,
            _gib(device.memory_bytes), _or_not(device.memory_bandwidth, ",.4g", 1e9),
        )  # fmt: skip
    return table


def _link_table(links: Iterable[Link]) -> Table:
    table = _table(["link", "latency", "GB/s", "shared", "from"], left=("link", "shared", "from"))
    for link in links:
        table.add_row(
            link.name, f"{link.latency_s * 1e6:,.6g} µs", f"{link.bandwidth / 1e9:,.6g}",
            "yes" if link.shared else "no", link.source,
        )  # fmt: skip
    return table


def _machine_table(machines: Iterable[tuple[Machine, int | None]]) -> Table:
    """With numbers where they are given; the network's speed is in Gb/s."""
    rows = list(machines)
    number = ["number"] if any(count is not None for _, count in rows) else []
    columns = ["machine", *number, "devices", "vCPUs", "GiB", "Gb/s", "an hour", "spot", "region", "seen"]
    table = _table(columns, left=("machine", "devices", "region", "seen"))
    for machine, count in rows:
        table.add_row(
            machine.name, *([str(count)] if number else []),
            " + ".join(f"{each.count} {each.device.name}" for each in machine.devices),
            _or_not(machine.vcpus, "d"), _gib(machine.memory_bytes),
            _or_not(machine.network.bandwidth * 8 if machine.network else None, ",.4g", 1e9),
            _price(machine.price_per_hour, machine.currency), _price(machine.spot_price_per_hour, machine.currency),
            machine.region, machine.price_date,
        )  # fmt: skip
    return table


def _price(value: float | None, currency: str) -> str:
    return "--" if value is None else f"{value:,.4f} {currency}"


def _or_not(value: float | None, form: str, unit: float = 1) -> str:
    if value is None:
        return "--"
    return format(value / unit if unit != 1 else value, form)


def _gib(size_bytes: int | None) -> str:
    return "--" if size_bytes is None else f"{size_bytes / 2**30:,.6g}"
