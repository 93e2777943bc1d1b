"""Where one could train: the machines of a cluster or of the catalogue, and how many workers they can have."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from paceline.cluster import Cluster, Device, Link, Machine, known_machines, read_cluster
from paceline.cluster.catalogue import find_machine
from paceline.errors import InputError

CATALOGUE = "catalogue"
MOST_MACHINES = 16
"""Of one kind, where nothing says how many can be had."""
OLDEST_YEARS = 5
"""Machines whose prices are this much older than the newest are there for comparison, not for rent."""


@dataclass(frozen=True)
class Place:
    """A machine, one kind of its devices, and how many of the machine can be had."""

    machine: Machine
    device: Device
    devices: int
    """Of this kind in a machine; each can have a worker."""
    available: int
    network: Link | None
    """Between machines; None where there is only one."""
    most: int = 0
    """Machines with workers, where there could be more; 0: all that are available."""

    def price_per_hour(self, spot: bool) -> float | None:
        return self.machine.spot_price_per_hour if spot else self.machine.price_per_hour

    def memory_bytes(self, workers_here: int) -> int | None:
        """What a worker can have; None where it is not known. CPUs of a machine share its memory."""
        if self.device.memory_bytes is not None:
            return self.device.memory_bytes
        if self.device.kind == "cpu" and self.machine.memory_bytes is not None:
            return self.machine.memory_bytes // workers_here
        return None

    def crews(self) -> Iterator[tuple[int, int]]:
        """(workers, workers a machine): some devices of one machine, then all devices of several."""
        for workers in _doubling(self.devices):
            yield workers, workers
        most = self.most or self.available
        spare = {most - 1} if most == self.available else set()  # the last one could be the server's
        for machines in sorted({*_doubling(most), *spare}):
            if machines > 1:
                yield machines * self.devices, self.devices


@dataclass(frozen=True)
class Places:
    name: str
    places: tuple[Place, ...]
    excluded: dict[str, int]
    """By reason, machines that are not among them."""
    price_dates: tuple[str, ...]

    @property
    def currency(self) -> str:
        """What money is counted in: the prices' currency, or machine hours where nothing has a price."""
        return next((p.machine.currency for p in self.places if p.machine.price_per_hour), MACHINE_HOURS)


MACHINE_HOURS = "machine hours"


def find_places(cluster: str, *, spot: bool = False) -> Places:
    """`catalogue`, machines of it by name with commas between them, or a cluster.toml."""
    if cluster.endswith(".toml") or "/" in cluster or Path(cluster).is_file():
        return places_of(read_cluster(cluster), spot=spot)
    machines = known_machines() if cluster == CATALOGUE else tuple(map(_named, cluster.split(",")))
    excluded = {}
    dated = [machine.price_date for machine in machines if machine.price_date]
    if cluster == CATALOGUE and dated:
        oldest = str(int(max(dated)[:4]) - OLDEST_YEARS)
        recent = tuple(m for m in machines if not m.price_date or m.price_date[:4] >= oldest)
        if len(recent) < len(machines):
            excluded[f"machines with prices from before {oldest}"] = len(machines) - len(recent)
        machines = recent
    found = [(m, MOST_MACHINES + 1 if m.network is not None else 1, m.network) for m in machines]
    return _priced(cluster, found, excluded, spot, MOST_MACHINES)


def places_of(cluster: Cluster, *, spot: bool = False) -> Places:
    found = [(each.machine, each.count, cluster.network) for each in cluster.machines]
    return _priced(cluster.name, found, {}, spot)


def _named(name: str) -> Machine:
    try:
        return find_machine(name.strip())
    except InputError as error:
        raise InputError(f"--cluster: {error} (or name a cluster.toml, or catalogue for all machines)") from error


def _priced(
    name: str, found: list[tuple[Machine, int, Link | None]], excluded: dict[str, int], spot: bool, most: int = 0
) -> Places:
    """Without those whose price is not known, if that of others is."""
    any_price = any(machine.price_per_hour is not None for machine, _, _ in found)
    priced = [
        (machine, count, network) for machine, count, network in found
        if (machine.spot_price_per_hour if spot else machine.price_per_hour) is not None
    ]  # fmt: skip
    if spot and not priced:
        raise InputError(f"--spot: no machine of {name} has a spot price: write spot_price = … for one")
    kept = priced if any_price or spot else found
    if len(kept) < len(found):
        what = "machines without a spot price" if spot else "machines without a price"
        excluded = {**excluded, what: len(found) - len(kept)}
    places = tuple(place for machine, count, network in kept for place in _of_machine(machine, count, network, most))
    dates = tuple(sorted({machine.price_date for machine, _, _ in kept if machine.price_date}))
    return Places(name, places, excluded, dates)


def _of_machine(machine: Machine, count: int, network: Link | None, most: int) -> Iterator[Place]:
    """Workers are on GPUs where there are any: who has them pays for them."""
    kind = "gpu" if machine.count("gpu") else "cpu"
    if kind == "gpu":
        machine.link("host_device")
    if count > 1 and network is None:
        machine.link("network")
    for each in machine.devices:
        if each.device.kind == kind:
            yield Place(machine, each.device, each.count, count, network if count > 1 else None, min(most, count))


def _doubling(most: int) -> Iterator[int]:
    """1, 2, 4, … and `most` itself."""
    number = 1
    while number < most:
        yield number
        number *= 2
    yield most
