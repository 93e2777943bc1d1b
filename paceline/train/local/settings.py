"""What a server or a worker process is started with: one JSON text on its command line."""

from __future__ import annotations

import json
from dataclasses import dataclass

from paceline.record import from_json, to_json
from paceline.strategy.layout import Layout
from paceline.strategy.strategy import Strategy
from paceline.testing.faults import Fault
from paceline.train.local.memory import Sizes
from paceline.workload import Workload


@dataclass(frozen=True)
class Settings:
    parent: int
    """The launcher's process; without it there is nothing to do."""
    memory: int
    """Descriptors: the shared memory, and what wakes the launcher, the server and each worker."""
    wake_launcher: int
    wake_server: int
    wake_workers: tuple[int, ...]
    sizes: Sizes
    strategy: Strategy
    layout: Layout
    workload: Workload
    workers: int
    threads: int
    number: int
    """Of the worker; for the server the number of workers, for its other shards those after that."""
    life: int
    device: str
    cache: str
    """Where data sets are; empty: the usual place."""
    search_path: tuple[str, ...]
    """Where the launcher found modules, so that the user's own are found again."""
    on_bad_gradient: str
    faults: tuple[Fault, ...] = ()
    measure: str = ""
    """Where each worker writes what its clock finds; empty: there is no clock."""
    wake_shards: tuple[int, ...] = ()
    """Of the server, but for the server itself."""
    collective: str = "shared"
    """How the payloads of a group are added up: from the slots, or by its members with nccl or gloo."""
    rendezvous: int = 0
    """The port at which these find each other."""

    @property
    def descriptors(self) -> tuple[int, ...]:
        return (self.memory, self.wake_launcher, self.wake_server, *self.wake_workers, *self.wake_shards)

    def text(self) -> str:
        return json.dumps(to_json(self))

    @staticmethod
    def of(text: str) -> Settings:
        settings: Settings = from_json(Settings, json.loads(text), "settings")
        return settings
