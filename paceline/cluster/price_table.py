"""Prices of machines in August 2017, four at a time or with GPUs, as a study of that year lists them per year.

A row's price is instances * price per hour * 8760. The hourly prices come from the study's own rows: no price list of
that month (machine, sustained use, GPU, disk) gives all of them, and a GPU's share differs from row to row, as
`gpu_per_hour` shows.
"""

from __future__ import annotations

from dataclasses import dataclass

from paceline.cluster import catalogue
from paceline.cluster.machine import HOURS_A_YEAR, Machine


@dataclass(frozen=True)
class PriceRow:
    machine: Machine
    instances: int
    printed_per_year: float
    """The name used in the study."""
    gpu_per_hour: float | None
    """Price of a GPU per hour, in addition to the machine's."""

    @property
    def per_year(self) -> float:
        return self.instances * (self.machine.price_per_hour or 0.0) * HOURS_A_YEAR

    @property
    def vcpus(self) -> int:
        return self.instances * (self.machine.vcpus or 0)

    @property
    def memory_bytes(self) -> int:
        return self.instances * (self.machine.memory_bytes or 0)

    @property
    def gpus(self) -> int:
        return self.instances * self.machine.count("gpu")

    @property
    def gpu_memory_bytes(self) -> int:
        return self.instances * self.machine.gpu_memory_bytes


def price_table() -> tuple[PriceRow, ...]:
    made = []
    for row in catalogue.rows("prices_2017"):
        machine, host = catalogue.find_machine(row["machine"]), catalogue.find_machine(row["host"])
        gpus = machine.count("gpu")
        added = (machine.price_per_hour or 0.0) - (host.price_per_hour or 0.0)
        made.append(PriceRow(machine, row["instances"], row["per_year"], added / gpus if gpus else None))
    return tuple(made)
