"""The machines to choose from, of a cluster or of the catalogue, and the numbers of workers they can run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from paceline.cluster import Cluster, Device, Link, Machine, known_machines, read_cluster
from paceline.cluster.catalogue import find_machine
from paceline.cluster.cluster_file import is_file_name
from paceline.cost.this_machine import HERE, a_worker_a_core, this_machine
from paceline.errors import InputError

CATALOGUE = "catalogue"
MAX_MACHINES = 16
"""Per kind, if the number of available machines is not given."""
MACHINE_HOURS = "machine hours"
OLDEST_YEARS = 5
"""Machines with prices this much older than the newest are in the catalogue for comparison only."""


@dataclass(frozen=True)
class MachineOption:
    """A machine, one kind of its devices, and how many of these machines are available."""

    machine: Machine
    device: Device
    devices: int
    """Devices of this kind per machine; each can run a worker."""
    available: int
    network: Link | None
    """The network between machines; None if there is only one machine."""
    most: int = 0
    """Limit on machines with workers; 0: all available ones."""
    min_workers: int = 1
    """Minimum workers on one machine, if another option covers fewer."""

    def price_per_hour(self, spot: bool) -> float | None:
        return self.machine.spot_price_per_hour if spot else self.machine.price_per_hour

    def worker_layouts(self) -> Iterator[tuple[int, int]]:
        """(workers, workers per machine): some devices of one machine, then all devices of several."""
        for workers in _doubling(self.devices):
            if workers >= self.min_workers:
                yield workers, workers
        most = self.most or self.available
        spare = {most - 1} if most == self.available else set()  # the last machine may be needed for the server
        for machines in sorted({*_doubling(most), *spare}):
            if machines > 1:
                yield machines * self.devices, self.devices


@dataclass(frozen=True)
class MachineOptions:
    name: str
    places: tuple[MachineOption, ...]
    excluded: dict[str, int]
    """Number of excluded machines by reason."""
    price_dates: tuple[str, ...]
    currency: str
    """The currency of the prices, or machine hours if no machine has a price."""


def find_machine_options(cluster: str, *, spot: bool = False) -> MachineOptions:
    """`catalogue`, comma-separated names of its machines, a cluster.toml, or `here`."""
    if cluster == HERE:
        return _here()
    if is_file_name(cluster):
        return options_of(read_cluster(cluster), spot=spot)
    machines = known_machines() if cluster == CATALOGUE else _named_machines(cluster)
    excluded = {}
    dated = [machine.price_date for machine in machines if machine.price_date]
    if cluster == CATALOGUE and dated:
        oldest = str(int(max(dated)[:4]) - OLDEST_YEARS)
        recent = tuple(m for m in machines if not m.price_date or m.price_date[:4] >= oldest)
        if len(recent) < len(machines):
            excluded[f"machines with prices from before {oldest}"] = len(machines) - len(recent)
        machines = recent
    found = [(m, MAX_MACHINES + 1 if m.network is not None else 1, m.network) for m in machines]
    return _priced(cluster, found, excluded, spot, MAX_MACHINES)


def options_of(cluster: Cluster, *, spot: bool = False) -> MachineOptions:
    found = [(each.machine, each.count, cluster.network) for each in cluster.machines]
    return _priced(cluster.name, found, {}, spot)


def _here() -> MachineOptions:
    """This machine: one worker with all cores, or one worker per core."""
    machine = this_machine()
    (each,) = machine.devices
    places = [MachineOption(machine, each.device, each.count, 1, None)]
    if (cores := a_worker_a_core(machine)) != machine:
        (core,) = cores.devices
        places.append(MachineOption(cores, core.device, core.count, 1, None, min_workers=2))
    return MachineOptions(HERE, tuple(places), {}, (), MACHINE_HOURS)


def _named_machines(cluster: str) -> tuple[Machine, ...]:
    names = [name.strip() for name in cluster.split(",") if name.strip()]
    if not names:
        raise InputError(f"`cluster={cluster!r}` names no machine: give some, a cluster.toml, or catalogue for all")
    try:
        return tuple(dict.fromkeys(map(find_machine, names)))
    except InputError as error:
        raise InputError(f"`cluster`: {error} (or name a cluster.toml, or catalogue for all machines)") from error


def _priced(
    name: str, found: list[tuple[Machine, int, Link | None]], excluded: dict[str, int], spot: bool, most: int = 0
) -> MachineOptions:
    """Leaves out machines without a price if others have one."""
    priced = [
        (machine, count, network) for machine, count, network in found
        if (machine.spot_price_per_hour if spot else machine.price_per_hour) is not None
    ]  # fmt: skip
    if spot and not priced:
        raise InputError(f"`spot`: no machine of {name} has a spot price: write spot_price = … for one")
    kept = priced or found
    if len(kept) < len(found):
        what = "machines without a spot price" if spot else "machines without a price"
        excluded = {**excluded, what: len(found) - len(kept)}
    places = tuple(place for machine, count, network in kept for place in _of_machine(machine, count, network, most))
    dates = tuple(sorted({machine.price_date for machine, _, _ in kept if machine.price_date}))
    return MachineOptions(name, places, excluded, dates, priced[0][0].currency if priced else MACHINE_HOURS)


def _of_machine(machine: Machine, count: int, network: Link | None, most: int) -> Iterator[MachineOption]:
    """Workers run on GPUs if the machine has any, because they are part of its price."""
    kind = "gpu" if machine.count("gpu") else "cpu"
    if kind == "gpu":
        machine.link("host_device")
    if count > 1 and network is None:
        machine.link("network")
    for each in machine.devices:
        if each.device.kind == kind:
            yield MachineOption(
                machine, each.device, each.count, count, network if count > 1 else None, min(most, count)
            )


def _doubling(most: int) -> Iterator[int]:
    """1, 2, 4, … and `most` itself."""
    number = 1
    while number < most:
        yield number
        number *= 2
    yield most
