"""A link between devices or machines: a message takes latency + bytes / bandwidth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paceline.cluster import checks
from paceline.cluster.quantities import quantity
from paceline.errors import InputError


@dataclass(frozen=True)
class Link:
    """A link between devices or machines: latency and bandwidth."""

    name: str
    latency_s: float
    bandwidth: float
    """Bytes/s in one direction."""
    shared: bool = True
    """Whether messages in one direction are serialised, as on a bus shared by several devices."""
    source: str = ""

    def __post_init__(self) -> None:
        checks.require_text("link name", self.name)
        where = f"link {self.name!r}"
        checks.require_number(f"{where}: latency_s", self.latency_s, zero=True)
        checks.require_number(f"{where}: bandwidth", self.bandwidth)
        if not isinstance(self.shared, bool):
            raise InputError(f"{where}: shared={self.shared!r:.60} should be true or false")
        checks.require_text(f"{where}: source", self.source, may_be_empty=True)

    def seconds(self, size_bytes: float, messages: int = 1) -> float:
        """Time of simultaneous messages: latency + bytes / bandwidth; transfers add up on a shared link."""
        return self.latency_s + size_bytes / self.bandwidth * (messages if self.shared else 1)

    def to_table(self) -> dict[str, Any]:
        """A table that `link_from_table` reads, in base units."""
        table: dict[str, Any] = {"name": self.name, "latency": self.latency_s, "bandwidth": self.bandwidth}
        return {**table, "shared": self.shared, **({"source": self.source} if self.source else {})}


KEYS = ("name", "latency", "bandwidth", "shared", "source")


def link_from_table(table: Mapping[str, Any], where: str) -> Link:
    """The link described by a table of a file; `where` names the table in errors."""
    checks.known_keys(where, table, KEYS)
    for key, example in (("latency", "50 us"), ("bandwidth", "10 Gb/s")):
        if key not in table:
            raise InputError(f'{where} has no {key}: write {key} = "{example}" or as it is')
    return Link(
        table.get("name", where),
        quantity(table["latency"], "time", f"{where}.latency"),
        quantity(table["bandwidth"], "rate", f"{where}.bandwidth"),
        **{key: table[key] for key in ("shared", "source") if key in table},
    )
