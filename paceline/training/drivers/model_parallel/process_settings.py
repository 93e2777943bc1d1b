"""The settings of one process of a divided network, passed as one JSON text, and its place among the others."""

from __future__ import annotations

import json
from dataclasses import dataclass

from paceline.cost.partition import Cut
from paceline.record import from_json, to_json
from paceline.training.settings import ParallelSettings
from paceline.workload import Workload


@dataclass(frozen=True)
class DividedSettings:
    workload: Workload
    parallel: ParallelSettings
    replicas: int
    """Copies of the network, each on other batches."""
    cut: Cut
    """The number of the first piece of each stage."""
    rank: int
    threads: int
    cache: str
    """Where data sets are; empty: the usual place."""
    search_path: tuple[str, ...]
    """Where the launcher found modules, so that the user's own are found again."""
    rendezvous: str
    """The file by which the processes find each other."""
    timeout_s: float
    objects: str = ""
    """The file of what the user gave in Python; empty: nothing."""

    @property
    def world(self) -> int:
        return self.replicas * self.parallel.processes

    @property
    def mesh_shape(self) -> tuple[int, int, int]:
        """Processes by replica, stage and part of a layer; ranks count through parts first, then through stages."""
        return self.replicas, self.parallel.pipeline, self.parallel.tensor

    @property
    def replica(self) -> int:
        return self.rank // self.parallel.processes

    @property
    def stage(self) -> int:
        return self.rank // self.parallel.tensor % self.parallel.pipeline

    @property
    def part(self) -> int:
        return self.rank % self.parallel.tensor

    @property
    def is_sharded(self) -> bool:
        return self.parallel.shard == "fsdp"

    @property
    def who(self) -> str:
        parallel = self.parallel
        words = [
            *([f"part {self.part + 1}"] if parallel.tensor > 1 else []),
            *([f"stage {self.stage + 1}"] if parallel.pipeline > 1 else []),
            *([f"copy {self.replica + 1}"] if self.replicas > 1 else []),
        ]
        return " of ".join(words) or "the process"

    def text(self) -> str:
        return json.dumps(to_json(self))

    @staticmethod
    def of(text: str) -> DividedSettings:
        settings: DividedSettings = from_json(DividedSettings, json.loads(text), "settings")
        return settings
