"""The devices, links and machines that Paceline knows: rows of CSV files in paceline/catalogue.

Columns are the keys of cluster.toml and cells its values, so a row can be copied into a cluster.toml.
"""

from __future__ import annotations

import csv
import functools
from collections.abc import Mapping
from importlib import resources
from types import MappingProxyType
from typing import Any, TypeVar

from paceline.cluster.checks import find_named, plain
from paceline.cluster.device import Device, device_from_table
from paceline.cluster.link import Link, link_from_table
from paceline.cluster.machine import Machine
from paceline.cluster.machine_table import machine_from_table

Named = TypeVar("Named", Device, Link)


def rows(name: str) -> list[dict[str, Any]]:
    """The rows of one file, without empty cells and with numbers converted."""
    text = resources.files("paceline").joinpath("catalogue", f"{name}.csv").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [{key: _cell(cell) for key, cell in row.items() if cell} for row in csv.DictReader(lines)]


def _cell(text: str) -> int | float | bool | str:
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def _named(made: list[tuple[Named, str]]) -> Mapping[str, Named]:
    """Entries by plain name; aliases never replace a primary name."""
    known = {plain(one.name): one for one, _ in made}
    for one, others in made:
        for other in filter(None, others.split(";")):
            known.setdefault(plain(other), one)
    return MappingProxyType(known)


@functools.cache
def device_names() -> Mapping[str, Device]:
    """Every device by plain name, including aliases such as A100."""
    return _named([(device_from_table(row, f"devices.{row['name']}"), other) for row, other in _with_others("devices")])


@functools.cache
def link_names() -> Mapping[str, Link]:
    return _named([(link_from_table(row, f"links.{row['name']}"), other) for row, other in _with_others("links")])


@functools.cache
def machine_names() -> Mapping[str, Machine]:
    made = [machine_from_table(row, row["name"], device_names(), link_names()) for row in rows("machines")]
    return MappingProxyType({plain(machine.name): machine for machine in made})


def _with_others(name: str) -> list[tuple[dict[str, Any], str]]:
    return [(row, str(row.pop("also", ""))) for row in rows(name)]


def known_devices() -> tuple[Device, ...]:
    return tuple(dict.fromkeys(device_names().values()))


def known_links() -> tuple[Link, ...]:
    return tuple(dict.fromkeys(link_names().values()))


def known_machines() -> tuple[Machine, ...]:
    return tuple(machine_names().values())


def find_device(name: str) -> Device:
    """Finds a device by name, ignoring case, spaces and dashes."""
    return find_named("device", name, device_names())


def find_link(name: str) -> Link:
    return find_named("link", name, link_names())


def find_machine(name: str) -> Machine:
    return find_named("machine", name, machine_names())
