"""Where one could train: the machines of a cluster or of the catalogue, and how many workers they can have."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from paceline.cluster import Cluster, Device, Link, Machine, known_machines, read_cluster
from paceline.cluster.catalogue import find_machine
from paceline.cluster.cluster_file import is_file_name
from paceline.errors import InputError
from paceline.simulation.this_machine import HERE, a_worker_a_core, this_machine

CATALOGUE = "catalogue"
MOST_MACHINES = 16
"""Of one kind, where nothing says how many can be had."""
MACHINE_HOURS = "machine hours"
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
    fewest: int = 1
    """Workers of one machine, where another place is for fewer."""

    def price_per_hour(self, spot: bool) -> float | None:
        return self.machine.spot_price_per_hour if spot else self.machine.price_per_hour

    def crews(self) -> Iterator[tuple[int, int]]:
        """(workers, workers a machine): some devices of one machine, then all devices of several."""
        for workers in _doubling(self.devices):
            if workers >= self.fewest:
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
    currency: str
    """What money is counted in: the prices' currency, or machine hours where nothing has a price."""


def find_places(cluster: str, *, spot: bool = False) -> Places:
    """`catalogue`, machines of it by name with commas between them, a cluster.toml, or `here`."""
    if cluster == HERE:
        return _here()
    if is_file_name(cluster):
        return places_of(read_cluster(cluster), spot=spot)
    machines = known_machines() if cluster == CATALOGUE else _named_machines(cluster)
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


def _here() -> Places:
    """This machine: one worker with all its cores, or a worker for each."""
    machine = this_machine()
    (each,) = machine.devices
    places = [Place(machine, each.device, each.count, 1, None)]
    if (cores := a_worker_a_core(machine)) != machine:
        (core,) = cores.devices
        places.append(Place(cores, core.device, core.count, 1, None, fewest=2))
    return Places(HERE, tuple(places), {}, (), MACHINE_HOURS)


def _named_machines(cluster: str) -> tuple[Machine, ...]:
    names = [name.strip() for name in cluster.split(",") if name.strip()]
    if not names:
        raise InputError(f"--cluster {cluster!r} names no machine: give some, a cluster.toml, or catalogue for all")
    try:
        return tuple(dict.fromkeys(map(find_machine, names)))
    except InputError as error:
        raise InputError(f"--cluster: {error} (or name a cluster.toml, or catalogue for all machines)") from error


def _priced(
    name: str, found: list[tuple[Machine, int, Link | None]], excluded: dict[str, int], spot: bool, most: int = 0
) -> Places:
    """Without those whose price is not known, if that of others is."""
    priced = [
        (machine, count, network) for machine, count, network in found
        if (machine.spot_price_per_hour if spot else machine.price_per_hour) is not None
    ]  # fmt: skip
    if spot and not priced:
        raise InputError(f"--spot: no machine of {name} has a spot price: write spot_price = … for one")
    kept = priced or found
    if len(kept) < len(found):
        what = "machines without a spot price" if spot else "machines without a price"
        excluded = {**excluded, what: len(found) - len(kept)}
    places = tuple(place for machine, count, network in kept for place in _of_machine(machine, count, network, most))
    dates = tuple(sorted({machine.price_date for machine, _, _ in kept if machine.price_date}))
    return Places(name, places, excluded, dates, priced[0][0].currency if priced else MACHINE_HOURS)


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
