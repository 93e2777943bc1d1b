"""A compute device as described by its data sheet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from paceline.cluster import checks
from paceline.cluster.quantities import quantity
from paceline.errors import InputError, nearest

KINDS = ("cpu", "gpu")


@dataclass(frozen=True)
class Peak:
    """Peak FLOP/s by precision: float32 without matrix units, the others with them and without sparsity."""

    float32: float | None = None
    tf32: float | None = None
    bfloat16: float | None = None
    float16: float | None = None


PRECISIONS = tuple(field.name for field in fields(Peak))


@dataclass(frozen=True)
class Device:
    """A GPU or CPU: peak rates and memory as on its data sheet."""

    name: str
    kind: str
    """cpu or gpu."""
    peak: Peak = Peak()
    memory_bytes: int | None = None
    """The device's own memory; that of a CPU belongs to its machine."""
    memory_bandwidth: float | None = None
    """Bytes/s between the device and its memory."""
    cores: int | None = None
    """CPU cores; for a GPU, streaming multiprocessors or compute units."""
    threads: int | None = None
    year: int | None = None
    relative: str = ""
    """The architecture: calibrations transfer best between devices of the same one."""
    source: str = ""

    def __post_init__(self) -> None:
        checks.require_text("device name", self.name)
        where = f"device {self.name!r}"
        if self.kind not in KINDS:
            raise InputError(f"{where}: kind={self.kind!r} is unknown: {nearest(str(self.kind), KINDS)}")
        for precision in PRECISIONS:
            if getattr(self.peak, precision) is not None:
                checks.require_number(f"{where}: {precision}", getattr(self.peak, precision))
        if self.memory_bandwidth is not None:
            checks.require_number(f"{where}: memory_bandwidth", self.memory_bandwidth)
        for key, least in (("memory_bytes", 1), ("cores", 1), ("threads", 1), ("year", 1970)):
            if getattr(self, key) is not None:
                checks.require_whole(f"{where}: {key}", getattr(self, key), least)
        for key in ("relative", "source"):
            checks.require_text(f"{where}: {key}", getattr(self, key), may_be_empty=True)

    def peak_of(self, precision: str) -> float | None:
        """Peak FLOP/s; None if the data sheet does not give it."""
        if precision not in (*PRECISIONS, "float64"):
            raise InputError(f"no precision {precision!r}: {nearest(precision, PRECISIONS)}")
        found: float | None = getattr(self.peak, precision, None)
        return found

    def to_table(self) -> dict[str, Any]:
        """A table that `device_from_table` reads, in base units."""
        table: dict[str, Any] = {"name": self.name, "kind": self.kind}
        table |= {precision: getattr(self.peak, precision) for precision in PRECISIONS}
        table |= {"memory": self.memory_bytes, "memory_bandwidth": self.memory_bandwidth}
        table |= {key: getattr(self, key) for key in ("cores", "threads", "year", "relative", "source")}
        return {key: value for key, value in table.items() if value not in (None, "")}


KEYS = (
    *("name", "kind", *PRECISIONS, "memory", "memory_bandwidth"),
    *("cores", "threads", "year", "relative", "source"),
)


def device_from_table(table: Mapping[str, Any], where: str) -> Device:
    """The device described by a table of a file; `where` names the table in errors."""
    checks.known_keys(where, table, KEYS)
    if "kind" not in table:
        raise InputError(f'{where} has no kind: write kind = "gpu" or kind = "cpu"')
    speeds = {key: quantity(table[key], "speed", f"{where}.{key}") for key in PRECISIONS if key in table}
    given = {key: table[key] for key in ("kind", "cores", "threads", "year", "relative", "source") if key in table}
    if "memory" in table:
        given["memory_bytes"] = round(quantity(table["memory"], "size", f"{where}.memory"))
    if "memory_bandwidth" in table:
        given["memory_bandwidth"] = quantity(table["memory_bandwidth"], "rate", f"{where}.memory_bandwidth")
    return Device(table.get("name", ""), peak=Peak(**speeds), **given)
