"""The job description that every actor receives: plain values that any node can deserialise."""

from __future__ import annotations

import platform
from dataclasses import dataclass, field

import torch

from paceline.errors import InputError
from paceline.strategy.layout import Layout
from paceline.strategy.strategy import Strategy
from paceline.testing.faults import Fault
from paceline.training.conditions import own_version
from paceline.workload import Workload


def versions_here() -> dict[str, str]:
    return {
        "paceline": own_version(),
        "torch": torch.__version__.partition("+")[0],
        "Python": ".".join(platform.python_version_tuple()[:2]),
    }


@dataclass(frozen=True)
class Job:
    strategy: Strategy
    layout: Layout
    workload: Workload
    workers: int
    threads: int
    """Of each worker."""
    device: str
    """Of each worker, as it sees it: cpu, or cuda:0 where it has a GPU of its own."""
    payload_size: int
    cache: str = ""
    """Where data sets are on a node; empty: the usual place."""
    search_path: tuple[str, ...] = ()
    """Where the launcher found modules; a node that shares its files finds the user's own there."""
    on_bad_gradient: str = "stop"
    faults: tuple[Fault, ...] = ()
    record_events: bool = False
    server_threads: int = 1
    """Of the server, or of each of its shards."""
    shards: int = 1
    """Servers that share the parameters."""
    collective: str = "server"
    """How a synchronous group averages: at the server, or among its members with gloo or nccl."""
    collective_always: bool = False
    """Also where the server would do it sooner."""
    buckets: tuple[tuple[int, int], ...] = ()
    """Pieces of the parameters, in the order in which members exchange them; empty: all at once."""
    ports: tuple[int, int] = (0, 0)
    """From and up to which port a member of a group listens, the last one excluded; equal: any port."""
    stopped_timeout_s: float = 25.0
    """How long an actor may not answer before it is replaced."""
    answer_within_s: float = 600.0
    """How long a worker waits for a server that does not answer."""
    versions: dict[str, str] = field(default_factory=versions_here)

    @property
    def groups(self) -> int:
        return self.strategy.groups or self.workers

    @property
    def in_place(self) -> bool:
        """Whether the server may write to the parameters of a worker on its node, because it does not compute then."""
        aside = self.strategy.make_exchange.fetch_last or self.strategy.fragments is not None
        return self.device == "cpu" and not self.strategy.overlap and not aside

    def check_versions(self, node: str) -> None:
        """Raises an error unless this process has the same versions as the launcher."""
        for name, here in versions_here().items():
            wanted = self.versions.get(name, "")
            if here != wanted:
                raise InputError(
                    f"node {node} has {name} {here}, but the driver process has {wanted}: install the same version"
                )
