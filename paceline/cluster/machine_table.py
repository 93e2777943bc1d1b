"""Reads a machine from a table of a file: devices and links by name or inline, the price and its date."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from datetime import date
from typing import Any

from paceline.cluster import checks
from paceline.cluster.device import Device
from paceline.cluster.link import Link, link_from_table
from paceline.cluster.machine import HOURS_A_YEAR, LINKS, DeviceCount, Machine
from paceline.cluster.quantities import quantity
from paceline.errors import InputError, nearest

HOURS = {"hour": 1, "year": HOURS_A_YEAR}
KEYS = (
    *("name", "devices", "vcpus", "memory", *LINKS),
    *("price", "spot_price", "per", "currency", "region", "price_date", "source"),
)


def machine_from_table(
    table: Mapping[str, Any],
    where: str,
    devices: Mapping[str, Device],
    links: Mapping[str, Link],
    like: Machine | None = None,
) -> Machine:
    """With `like`, missing keys are taken from that machine."""
    checks.known_keys(where, table, KEYS)
    given: dict[str, Any] = {
        key: table[key] for key in ("name", "vcpus", "currency", "region", "price_date", "source") if key in table
    }
    if isinstance(given.get("price_date"), int | date):  # TOML has a date type, and a year is a number
        given["price_date"] = str(given["price_date"])
    if "devices" in table:
        given["devices"] = device_counts(table["devices"], f"{where}.devices", devices)
    if "memory" in table:
        given["memory_bytes"] = round(quantity(table["memory"], "size", f"{where}.memory"))
    for what in LINKS:
        if what in table:
            given[what] = link_given(table[what], f"{where}.{what}", links)
    hours = _hours(table.get("per", "hour"), where)
    for key in ("price", "spot_price"):
        if key in table:
            checks.require_number(f"{where}.{key}", table[key], zero=True)
            given[f"{key}_per_hour"] = table[key] / hours
    if like is not None:
        return dataclasses.replace(like, **given)
    if "devices" not in given:
        raise InputError(f'{where} has no devices: write devices = {{ "RTX 4090" = 2 }}, or like = "g2-standard-4"')
    return Machine(**{"name": where, **given})


def device_counts(value: object, where: str, devices: Mapping[str, Device]) -> tuple[DeviceCount, ...]:
    """A name, or a table from names to counts; in a catalogue row, `NAME * COUNT + NAME * COUNT`."""
    if isinstance(value, str):
        value = dict(_named_count(part, where) for part in value.split(" + "))
    if not isinstance(value, dict):
        raise InputError(f'{where}={value!r:.60} should be a name, or names and counts: {{ "RTX 4090" = 2 }}')
    counts = []
    for name, count in value.items():
        checks.require_whole(f"{where}.{name}", count)
        counts.append(DeviceCount(checks.find_named("device", name, devices, where), count))
    return tuple(counts)


def _named_count(part: str, where: str) -> tuple[str, int]:
    name, _, count = part.partition(" * ")
    if count and not count.isdigit():
        raise InputError(f"{where}={part!r:.60} should be NAME * COUNT")
    return name, int(count or 1)


def link_given(value: object, where: str, links: Mapping[str, Link]) -> Link:
    """A link by name, or as a table with latency and bandwidth."""
    if isinstance(value, str):
        return checks.find_named("link", value, links, where)
    if isinstance(value, dict):
        return link_from_table(value, where)
    raise InputError(f'{where}={value!r:.60} should be the name of a link, or {{ latency = "…", bandwidth = "…" }}')


def _hours(per: object, where: str) -> int:
    if not isinstance(per, str) or per not in HOURS:
        raise InputError(f"{where}.per={per!r:.60} is unknown: {nearest(str(per), HOURS)}")
    return HOURS[per]
