"""A cluster: machines, how many of each there are, and the network between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from paceline.cluster import checks
from paceline.cluster.link import Link
from paceline.cluster.machine import Machine
from paceline.errors import InputError


@dataclass(frozen=True)
class MachineCount:
    machine: Machine
    count: int = 1
    """The number of available machines of this kind."""

    def __post_init__(self) -> None:
        checks.require_whole(f"machine {self.machine.name!r}: count", self.count)


@dataclass(frozen=True)
class Cluster:
    """Machines that can be rented or used, and the network between them."""

    name: str
    machines: tuple[MachineCount, ...]
    network: Link | None = None
    """The network between machines; by default the slowest of theirs."""

    def __post_init__(self) -> None:
        checks.require_text("cluster name", self.name)
        where = f"cluster {self.name!r}"
        if not self.machines:
            raise InputError(f"{where} has no machines: write at least one [[machines]]")
        names = [each.machine.name for each in self.machines]
        for name in names:
            if names.count(name) > 1:
                raise InputError(f"{where} has two machines {name!r}: give one another name, or count them together")
        if len({each.machine.currency for each in self.machines if each.machine.price_per_hour is not None}) > 1:
            raise InputError(f"{where} has prices in several currencies; write them in one")
        if self.network is None and self.machine_count > 1:
            networks = [each.machine.link("network") for each in self.machines]
            object.__setattr__(self, "network", min(networks, key=lambda link: link.bandwidth))

    @property
    def machine_count(self) -> int:
        return sum(each.count for each in self.machines)

    def count(self, kind: str) -> int:
        """The total number of devices of a kind."""
        return sum(each.machine.count(kind) * each.count for each in self.machines)

    def machine(self, name: str) -> Machine:
        return checks.find_named(
            "machine", name, {checks.plain(m.machine.name): m.machine for m in self.machines}, self.name
        )

    @property
    def price_per_hour(self) -> float | None:
        """The price of all machines; None if one has no price."""
        return self._all_of("price_per_hour")

    @property
    def spot_price_per_hour(self) -> float | None:
        return self._all_of("spot_price_per_hour")

    def _all_of(self, key: str) -> float | None:
        prices = [(getattr(each.machine, key), each.count) for each in self.machines]
        return None if any(price is None for price, _ in prices) else sum(price * count for price, count in prices)

    def to_table(self) -> dict[str, Any]:
        """A table as in cluster.toml, in base units; links by name."""
        table: dict[str, Any] = {"name": self.name, **({"network": self.network.name} if self.network else {})}
        return {**table, "machines": [{**each.machine.to_table(), "count": each.count} for each in self.machines]}
