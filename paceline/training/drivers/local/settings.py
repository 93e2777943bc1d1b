"""The settings of a server or worker process, passed as one JSON text."""

from __future__ import annotations

import json
from dataclasses import dataclass

from paceline.record import from_json, to_json
from paceline.strategy.layout import Layout
from paceline.strategy.strategy import Strategy
from paceline.testing.faults import Fault
from paceline.training.drivers.local.shared_memory import Sizes
from paceline.workload import Workload


@dataclass(frozen=True)
class ProcessSettings:
    sizes: Sizes
    strategy: Strategy
    layout: Layout
    workload: Workload
    workers: int
    threads: int
    number: int
    """The worker's number; the server has the number of workers."""
    incarnation: int
    device: str
    cache: str
    """Where data sets are; empty: the usual place."""
    search_path: tuple[str, ...]
    """Where the launcher found modules, so that the user's own are found again."""
    on_bad_gradient: str
    faults: tuple[Fault, ...] = ()
    measure: str = ""
    """Where each worker writes what its layer clock finds; empty: there is no clock."""
    collective: str = "shared"
    """How the payloads of a group are averaged: from shared memory, or by its members with nccl or gloo."""
    rendezvous: str = ""
    """The file by which these find each other."""
    server_threads: int = 1
    objects: str = ""
    """The file of what the user gave in Python; empty: nothing."""

    @property
    def is_server(self) -> bool:
        return self.number == self.workers

    @property
    def group(self) -> int:
        return self.strategy.group_of(self.number, self.workers)

    @property
    def group_members(self) -> list[int]:
        return self.strategy.members_of(self.group, self.workers)

    def text(self) -> str:
        return json.dumps(to_json(self))

    @staticmethod
    def of(text: str) -> ProcessSettings:
        settings: ProcessSettings = from_json(ProcessSettings, json.loads(text), "settings")
        return settings
