"""Reads SkyPilot's public catalogue of cloud machines: one CSV file per cloud, one row per machine and region.

Rows without an instance type are accelerators priced separately, as some clouds do; their price is added to the
machine's. Rows that cannot be read are reported and counted, and the others are used.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from paceline.cluster import catalogue
from paceline.cluster.checks import plain
from paceline.cluster.machine import DeviceCount, Machine
from paceline.errors import InputError, nearest

COLUMNS = (
    "InstanceType", "AcceleratorName", "AcceleratorCount", "vCPUs", "MemoryGiB", "Price", "SpotPrice", "Region",
)  # fmt: skip
NAMED = 20
"""Number of unreadable rows that are reported."""


@dataclass(frozen=True)
class Offer:
    """A row: a machine in a region, an accelerator priced separately, or both together."""

    instance: str
    """Empty for an accelerator priced separately."""
    accelerator: str = ""
    accelerator_count: float = 0.0
    """May be fractional, for clouds that partition GPUs."""
    vcpus: float | None = None
    memory_bytes: int | None = None
    price_per_hour: float | None = None
    spot_price_per_hour: float | None = None
    region: str = ""

    def with_accelerator(self, other: Offer) -> Offer:
        """Combines a machine with a separately priced accelerator: prices add up, unknown values stay unknown."""
        return Offer(
            self.instance, other.accelerator, other.accelerator_count, self.vcpus, self.memory_bytes,
            _sum(self.price_per_hour, other.price_per_hour), _sum(self.spot_price_per_hour, other.spot_price_per_hour),
            self.region,
        )  # fmt: skip


@dataclass(frozen=True)
class SkyPilotCatalogue:
    offers: tuple[Offer, ...]
    refused: tuple[str, ...] = ()
    """The first rows that could not be read: line number and reason."""
    refused_count: int = 0

    def find(self, instance: str = "", accelerator: str = "", region: str = "") -> tuple[Offer, ...]:
        """Offers with these names; an empty name matches any."""
        return tuple(
            offer
            for offer in self.offers
            if (not instance or offer.instance == instance)
            and (not accelerator or plain(offer.accelerator) == plain(accelerator))
            and (not region or offer.region == region)
        )


def read_skypilot(path: str | Path) -> SkyPilotCatalogue:
    try:
        with Path(path).open(newline="", encoding="utf-8-sig") as file:
            return _read(csv.DictReader(file), str(path))
    except FileNotFoundError:
        raise InputError(f"no file {path}") from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} is not a CSV file: {error}") from error


def _read(reader: csv.DictReader[str], path: str) -> SkyPilotCatalogue:
    columns = reader.fieldnames or []
    for column in COLUMNS:
        if column not in columns:
            close = f" ({nearest(column, columns)})" if columns else ""
            raise InputError(f"{path} is not a vms.csv of SkyPilot's catalogue: no column {column}{close}")
    offers: list[Offer] = []
    refused: list[str] = []
    count = 0
    for row in reader:
        try:
            offers.append(_offer(row))
        except ValueError as error:
            count += 1
            if len(refused) < NAMED:
                refused.append(f"line {reader.line_num}: {error}")
    return SkyPilotCatalogue(tuple(offers), tuple(refused), count)


def _offer(row: dict[str, str]) -> Offer:
    if None in row or None in row.values():
        raise ValueError("the number of cells does not match the columns")
    instance, accelerator = row["InstanceType"].strip(), row["AcceleratorName"].strip()
    if not instance and not accelerator:
        raise ValueError("InstanceType and AcceleratorName are both empty")
    count, memory = _number(row, "AcceleratorCount"), _number(row, "MemoryGiB")
    if accelerator and not count:
        raise ValueError(f"AcceleratorCount is missing for {accelerator}")
    return Offer(
        instance, accelerator, count or 0.0, _number(row, "vCPUs"), None if memory is None else round(memory * 2**30),
        _number(row, "Price"), _number(row, "SpotPrice"), row["Region"].strip(),
    )  # fmt: skip


def _number(row: dict[str, str], column: str) -> float | None:
    text = row[column].strip()
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(f"{column} {text!r:.40} should be a number of at least 0")
    return value


def _sum(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a + b


def machines_of(offers: Iterable[Offer], price_date: str = "") -> tuple[Machine, ...]:
    """The machines whose accelerators are in the catalogue, once per region, with their lowest prices.

    Links are not in SkyPilot's catalogue: `dataclasses.replace` adds them.
    """
    found: dict[tuple[str, str, str, float], Machine] = {}
    known = catalogue.device_names()
    for offer in offers:
        device, count = known.get(plain(offer.accelerator)), offer.accelerator_count
        if not offer.instance or device is None or count != int(count):
            continue
        key = offer.instance, offer.region, offer.accelerator, count
        before = found.get(key)
        prices = [(before.price_per_hour, before.spot_price_per_hour)] if before else []
        prices.append((offer.price_per_hour, offer.spot_price_per_hour))
        price, spot = (min((p for p in column if p is not None), default=None) for column in zip(*prices, strict=True))
        found[key] = Machine(
            offer.instance, (DeviceCount(device, int(count)),), vcpus=round(offer.vcpus) if offer.vcpus else None,
            memory_bytes=offer.memory_bytes or None, price_per_hour=price, spot_price_per_hour=spot,
            region=offer.region, price_date=price_date, source="SkyPilot's catalogue",
        )  # fmt: skip
    return tuple(found.values())
