"""Reads cluster.toml: the available machines and the links between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from paceline.cluster import catalogue, checks
from paceline.cluster.cluster import Cluster, MachineCount
from paceline.cluster.device import Device, device_from_table
from paceline.cluster.link import Link, link_from_table
from paceline.cluster.machine import Machine
from paceline.cluster.machine_table import KEYS, link_given, machine_from_table
from paceline.errors import InputError, located
from paceline.settings import read_toml

Named = TypeVar("Named", Device, Link)


def is_file_name(cluster: str) -> bool:
    """Whether the name of a cluster means a file, existing or not, rather than a machine."""
    return cluster.endswith((".toml", ".csv")) or "/" in cluster or Path(cluster).is_file()


def read_cluster(path: str | Path) -> Cluster:
    """The cluster described by a file. Errors name the file and the key."""
    path = Path(path)
    if path.suffix == ".csv":
        raise InputError(
            f"{path} is not a cluster.toml; SkyPilot's files have no links, so write the machines you mean into one "
            f"(paceline catalogue {path} shows them)"
        )
    table = read_toml(path)
    with located(f"{path}: "):
        return cluster_from_table(table, path.stem)


def cluster_from_table(table: Mapping[str, Any], name: str = "cluster") -> Cluster:
    """Devices and links defined in the table take precedence over the catalogue."""
    checks.known_keys("the file", table, ("name", "network", "machines", "devices", "links"))
    devices = {**catalogue.device_names(), **_own(table, "devices", device_from_table)}
    links = {**catalogue.link_names(), **_own(table, "links", link_from_table)}
    network = link_given(table["network"], "network", links) if "network" in table else None
    given = table.get("machines", [])
    if not isinstance(given, list) or not given:
        raise InputError("it has no machines: write at least one [[machines]]")
    machines = [_machine(one, i, devices, links) for i, one in enumerate(given)]
    for each in machines:
        if each.machine.count("gpu"):
            each.machine.link("host_device")
    return Cluster(table.get("name", name), tuple(machines), network)


def _own(table: Mapping[str, Any], key: str, make: Callable[[Mapping[str, Any], str], Named]) -> dict[str, Named]:
    """Entries defined in the file, as [devices.NAME] and [links.NAME]."""
    made = {}
    for name, one in checks.a_table(key, table.get(key, {})).items():
        where = f"{key}.{name}"
        made[checks.plain(name)] = make({"name": name, **checks.a_table(where, one)}, where)
    return made


def _machine(given: object, position: int, devices: Mapping[str, Device], links: Mapping[str, Link]) -> MachineCount:
    where = f"machines[{position}]"
    table = dict(checks.a_table(where, given))
    if isinstance(table.get("name"), str):
        where = f"machines.{table['name']}"
    checks.known_keys(where, table, (*KEYS, "count", "like"))
    count, like_name = table.pop("count", 1), table.pop("like", None)
    checks.require_whole(f"{where}.count", count)
    like: Machine | None = None
    if like_name is not None:
        like = checks.find_named("machine", like_name, catalogue.machine_names(), f"{where}.like")
    else:
        table.setdefault("name", f"machine {position + 1}")
    return MachineCount(machine_from_table(table, where, devices, links, like), count)
