"""The placement of simulated workers: on how many machines, how many on each, and the links between them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from paceline.cluster.checks import plain
from paceline.cluster.link import Link
from paceline.cluster.machine import Machine
from paceline.cost.communication import divided_average_s, nested_all_gather_s, nested_all_reduce_s
from paceline.cost.prediction import Prediction
from paceline.cost.server_work import copy_rate
from paceline.simulation.durations import DurationDistribution
from paceline.simulation.virtual_cluster import Network

ALL_REDUCE, DIVIDED, AT_SERVER = "all-reduce", "divided", "at the server"
WAKE_S = 60e-6
"""Time to wake a sleeping process of the same machine."""


@dataclass(frozen=True)
class Placement:
    machine: Machine
    workers: int
    per_machine: int
    on_gpu: bool
    network: Link | None = None
    """Between machines; None: the machine's own."""
    averaging: str = ALL_REDUCE
    """How a group of several machines averages: by an all-reduce, after which every member updates for itself if there
    is one group; divided among the members, each of which exchanges its part with the server; or at the server."""

    @property
    def machines(self) -> int:
        """Machines that have workers."""
        return -(-self.workers // self.per_machine)

    @property
    def together(self) -> bool:
        """Whether one machine holds all workers."""
        return self.machines == 1

    @property
    def on_one(self) -> int:
        """The largest number of workers on one machine."""
        return min(self.workers, self.per_machine)

    @property
    def cores(self) -> int | None:
        """Cores of a machine; None if unknown."""
        processors = [each for each in self.machine.devices if each.device.kind == "cpu"]
        known = [self.machine.vcpus] if self.machine.vcpus else []
        if processors and all(each.device.cores for each in processors):
            known.append(sum((each.device.cores or 0) * each.count for each in processors))
        return min(known, default=None)

    def slowdown(self, busy_cores: float) -> float:
        """How many times as long a step takes beside the others of its machine as alone.

        Of more workers than GPUs, or more busy cores than there are, each has its share.
        """
        if self.on_gpu:
            return max(1.0, self.on_one / max(1, self.machine.count("gpu")))
        return 1.0 if self.cores is None else max(1.0, busy_cores / self.cores)

    def between(self) -> Link:
        return self.network if self.network is not None else self.machine.link("network")

    def inside(self, size_bytes: int) -> Link:
        """Between the workers of a machine. On a bus, all of them send at once."""
        if not self.on_gpu:
            return Link("memory", WAKE_S, copy_rate(size_bytes, self.machine), shared=False)
        link = self.machine.device_device or self.machine.link("host_device")
        if not link.shared:
            return link
        return Link(link.name, link.latency_s, link.bandwidth / self.on_one, source=link.source)

    def all_reduce_s(self, size_bytes: int, members: int) -> float:
        """Seconds of a group's all-reduce: inside its machines, then between them."""
        return self._collective_s(nested_all_reduce_s, size_bytes, members)

    def divided_average_s(self, size_bytes: int, members: int) -> float:
        """Seconds until every member has its part of the mean, and later all parts of the parameters."""
        return self._collective_s(divided_average_s, size_bytes, members)

    def all_gather_s(self, size_bytes: int, members: int) -> float:
        """Seconds until every member of a group has the payloads of all others."""
        return self._collective_s(nested_all_gather_s, size_bytes, members)

    def _collective_s(
        self, seconds: Callable[[float, int, int, Link, Link], float], size_bytes: int, members: int
    ) -> float:
        machines, devices = -(-members // self.per_machine), min(members, self.per_machine)
        if machines == devices == 1:
            return 0.0
        inside = self.inside(size_bytes) if devices > 1 else self.between()
        return seconds(size_bytes, machines, devices, inside, self.between() if machines > 1 else inside)

    def exchange(self, size_bytes: int, push_bytes: int | None = None) -> Network:
        """Between workers and the server: a process on their machine, or on another one.

        `size_bytes` are those of the parameters, `push_bytes` of a payload if that has another size.
        """
        if self.together and not self.on_gpu:
            return Network(WAKE_S, copy_rate(size_bytes, self.machine), shared=False)
        if self.together:
            bus = self.machine.link("host_device")
            return Network(bus.latency_s, bus.bandwidth, bus.shared)
        link, copy = self.between(), None
        if self.on_gpu and self.machine.host_device is not None:
            sizes = size_bytes, size_bytes if push_bytes is None else push_bytes
            seconds = sum(map(self.machine.host_device.seconds, sizes)) / 2  # a network has one time for both ways
            copy = DurationDistribution("constant", (seconds,))
        return Network(link.latency_s, link.bandwidth, link.shared, copy)


def runs_on_gpu(prediction: Prediction, machine: Machine) -> bool:
    """Decided by the device's name; if the machine has no such device, by whether the prediction counts CPU threads."""
    for each in machine.devices:
        if plain(each.device.name) == plain(prediction.device):
            return each.device.kind == "gpu"
    return machine.count("gpu") > 0 and not prediction.threads
