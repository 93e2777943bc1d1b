"""What there is: built-in networks, devices, links, machines, data sets, strategies and studies."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from paceline import notebook
from paceline.api.settings import as_optional_path
from paceline.errors import InputError, nearest

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped]

    from paceline.cluster import Device, Link, Machine
    from paceline.data.entries import Entry
    from paceline.networks import Description
    from paceline.reproduction.study import Study
    from paceline.strategy.strategy import Strategy

Item = TypeVar("Item")


class Listing(Generic[Item]):
    """Items in order, also by name: `paceline.devices()["H200"]`."""

    def __init__(self, what: str, items: Iterable[Item], row: Callable[[Item], dict[str, Any]]) -> None:
        self._what, self._items, self._row = what, tuple(items), row

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    @overload
    def __getitem__(self, key: int | str) -> Item: ...
    @overload
    def __getitem__(self, key: slice) -> tuple[Item, ...]: ...
    def __getitem__(self, key: int | str | slice) -> Item | tuple[Item, ...]:
        if not isinstance(key, str):
            return self._items[key]
        for item in self._items:
            if getattr(item, "name", None) == key:
                return item
        raise InputError(f"no {key!r} among the {self._what}: {nearest(key, self.names)}")

    def __contains__(self, key: object) -> bool:
        return key in self.names if isinstance(key, str) else key in self._items

    @property
    def names(self) -> list[str]:
        return [str(getattr(item, "name", item)) for item in self._items]

    def __repr__(self) -> str:
        return f"{self._what}: {', '.join(self.names)}"

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The items as a table for people."""
        return [self._row(item) for item in self._items]

    def to_pandas(self) -> pandas.DataFrame:
        return notebook.to_pandas(self.rows)

    def __str__(self) -> str:
        return notebook.facts_and_rows(self._what, {}, self.rows)

    def _repr_html_(self) -> str:
        return notebook.html_of(self._what, {}, self.rows)


def models() -> Listing[Description]:
    """List the built-in networks, with their parameters and layers.

    >>> paceline.models()["lenet5"].parameters
    61706
    """
    from paceline import networks
    from paceline.built_in import BUILT_IN
    from paceline.workload import Workload

    def row(network: Description) -> dict[str, Any]:
        return {
            "network": network.name, "parameters": network.parameters, "layers": len(network.layers),
            "input": "×".join(map(str, network.shape)),
            "default data": BUILT_IN[network.name].get("data", Workload.data), "what it is": network.description,
        }  # fmt: skip

    return Listing("models", networks.built_in_networks(), row)


def devices() -> Listing[Device]:
    """List the devices of the catalogue, with their peak rates and memory as on the data sheet.

    >>> paceline.devices()["H200"].memory_bytes // 2**30
    141
    """
    from paceline.cluster import PRECISIONS, known_devices

    def row(device: Device) -> dict[str, Any]:
        return {
            "device": device.name, "kind": device.kind, "relative": device.relative, "year": device.year,
            "cores": device.cores, **{each: _in(device.peak_of(each), 1e12) for each in PRECISIONS},
            "GiB": _in(device.memory_bytes, 2**30), "GB/s": _in(device.memory_bandwidth, 1e9),
        }  # fmt: skip

    return Listing("devices", known_devices(), row)


def links() -> Listing[Link]:
    """List the links of the catalogue, with latency and bandwidth.

    >>> "NVLink 4" in paceline.links()
    True
    """
    from paceline.cluster import known_links

    def row(link: Link) -> dict[str, Any]:
        return {
            "link": link.name, "latency µs": 1e6 * link.latency_s, "GB/s": link.bandwidth / 1e9,
            "shared": link.shared, "source": link.source,
        }  # fmt: skip

    return Listing("links", known_links(), row)


def machines() -> Listing[Machine]:
    """List the machines of the catalogue, with their devices and dated prices.

    >>> paceline.machines()["g2-standard-8"].count("gpu")
    1
    """
    from paceline.cluster import known_machines

    return Listing("machines", known_machines(), machine_row)


def machine_row(machine: Machine) -> dict[str, Any]:
    return {
        "machine": machine.name,
        "devices": " + ".join(f"{each.count} {each.device.name}" for each in machine.devices),
        "vCPUs": machine.vcpus, "GiB": _in(machine.memory_bytes, 2**30),
        "Gb/s": _in(machine.network.bandwidth if machine.network else None, 1e9 / 8),
        "price per hour": machine.price_per_hour, "spot": machine.spot_price_per_hour,
        "currency": machine.currency, "region": machine.region, "date": machine.price_date,
    }  # fmt: skip


def _in(value: float | None, unit: float) -> float | None:
    """A value in larger units, to four digits."""
    return None if value is None else float(f"{value / unit:.4g}")


def datasets(data_dir: str | Path | None = None) -> Listing[Entry]:
    """List the data sources, and where each is stored.

    >>> paceline.datasets()["digits"].samples
    (1437, 360)
    """
    from paceline import data

    def row(entry: Entry) -> dict[str, Any]:
        return {
            "data": entry.name, "train / test": " / ".join(f"{n:,}" for n in entry.samples or ()),
            "sample": "×".join(map(str, entry.shape or ())), "classes": len(entry.classes or ()) or None,
            "where": str(entry.place or ""), "what it is": entry.description,
        }  # fmt: skip

    return Listing("datasets", data.available_datasets(cache=as_optional_path(data_dir, "data_dir")), row)


def strategies() -> Listing[Strategy]:
    """List the built-in strategies; one of them with changes is `paceline.find_strategy(name, push_every=10)`.

    >>> paceline.strategies()["diloco"].push_every
    500
    """
    import dataclasses

    from paceline.strategy.presets import PRESETS

    return Listing("strategies", PRESETS.values(), dataclasses.asdict)


def studies() -> Listing[Study]:
    """List the published studies that `paceline.reproduce` can repeat.

    >>> "elgato" in paceline.studies()
    True
    """
    from paceline.reproduction.study import known_studies

    return Listing("studies", known_studies(), lambda study: {"study": study.name, "title": study.title})
