"""A machine: its devices, its links, and its price per hour on a given date."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from paceline.cluster import checks
from paceline.cluster.device import Device
from paceline.cluster.link import Link
from paceline.errors import InputError, nearest

HOURS_A_YEAR = 8760

LINKS = {
    "host_device": ("between host and devices", "PCIe 4.0 x16", "10 us", "31.5 GB/s"),
    "device_device": ("between its devices", "NVLink 4", "3 us", "450 GB/s"),
    "network": ("to other machines", "10 Gb/s Ethernet", "30 us", "10 Gb/s"),
    "disk": ("to its disk", "NVMe SSD", "100 us", "3.5 GB/s"),
}


@dataclass(frozen=True)
class DeviceCount:
    device: Device
    count: int = 1

    def __post_init__(self) -> None:
        checks.require_whole(f"device {self.device.name!r}: count", self.count)


@dataclass(frozen=True)
class Machine:
    """A machine of a catalogue or a cluster: devices, memory, links and dated prices."""

    name: str
    devices: tuple[DeviceCount, ...]
    vcpus: int | None = None
    memory_bytes: int | None = None
    host_device: Link | None = None
    device_device: Link | None = None
    network: Link | None = None
    disk: Link | None = None
    price_per_hour: float | None = None
    spot_price_per_hour: float | None = None
    currency: str = "USD"
    region: str = ""
    price_date: str = ""
    """The date of the prices: YYYY, YYYY-MM or YYYY-MM-DD."""
    source: str = ""

    def __post_init__(self) -> None:
        checks.require_text("machine name", self.name)
        where = f"machine {self.name!r}"
        if not self.devices:
            raise InputError(f'{where} has no devices: write devices = {{ "RTX 4090" = 2 }}, or a CPU\'s name')
        for key in ("vcpus", "memory_bytes"):
            if getattr(self, key) is not None:
                checks.require_whole(f"{where}: {key}", getattr(self, key))
        for key in ("price_per_hour", "spot_price_per_hour"):
            if getattr(self, key) is not None:
                checks.require_number(f"{where}: {key}", getattr(self, key), zero=True)
        for key in ("currency", "region", "source"):
            checks.require_text(f"{where}: {key}", getattr(self, key), may_be_empty=key != "currency")
        checks.require_date(f"{where}: price_date", self.price_date)

    def count(self, kind: str) -> int:
        """The number of devices of a kind."""
        return sum(each.count for each in self.devices if each.device.kind == kind)

    @property
    def gpu_memory_bytes(self) -> int:
        return sum((d.device.memory_bytes or 0) * d.count for d in self.devices if d.device.kind == "gpu")

    def link(self, what: str) -> Link:
        """The link host_device, device_device, network or disk; if missing, the error says what to write."""
        if what not in LINKS:
            raise InputError(f"a machine has no link {what!r}: {nearest(what, LINKS)}")
        found: Link | None = getattr(self, what)
        if found is None:
            between, name, latency, bandwidth = LINKS[what]
            raise InputError(
                f'machine {self.name!r} has no {what} link ({between}): write {what} = "{name}"'
                f' or {what} = {{ latency = "{latency}", bandwidth = "{bandwidth}" }}'
            )
        return found

    def price(self, seconds: float, *, spot: bool = False) -> float | None:
        """The cost of using it for a time; None if the price is not known."""
        per_hour = self.spot_price_per_hour if spot else self.price_per_hour
        return None if per_hour is None else per_hour * seconds / 3600

    def to_table(self) -> dict[str, Any]:
        """A table as in cluster.toml, in base units; links by name."""
        table: dict[str, Any] = {
            "name": self.name,
            "devices": {each.device.name: each.count for each in self.devices},
            "vcpus": self.vcpus,
            "memory": self.memory_bytes,
            **{what: getattr(getattr(self, what), "name", None) for what in LINKS},
            "price": self.price_per_hour,
            "spot_price": self.spot_price_per_hour,
            **{key: getattr(self, key) for key in ("currency", "region", "price_date", "source")},
        }
        return {key: value for key, value in table.items() if value not in (None, "")}
