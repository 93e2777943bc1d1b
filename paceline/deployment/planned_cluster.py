"""The cluster that a plan's pick needs: how many machines, what each has, and the command that trains on it."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from paceline.cluster import Device, Machine
from paceline.deployment.cloud import cloud_of, instance_type_of
from paceline.deployment.settings import MOST_NAME, DeploymentSettings
from paceline.deployment.train_command import resume_command, train_command
from paceline.errors import InputError
from paceline.planning.plan import Plan
from paceline.planning.reasons import money_words, time_words

MEMORY_SHARE = 0.75
"""Share of a machine's memory for a container; the rest is for the system and what the cluster runs on every node."""


@dataclass(frozen=True)
class PlannedCluster:
    plan: Plan
    settings: DeploymentSettings

    def __post_init__(self) -> None:
        if self.plan.pick.candidate.workers == 1:
            raise InputError("the plan's pick has one worker, which needs no cluster: train with the plan itself")
        if self.plan.pick.candidate.is_divided:
            raise InputError("the plan's pick is divided within one machine and needs no cluster: train with the plan")
        if self.settings.gpu_resource is not None and not self.gpus:
            raise InputError(f"`gpu_resource` is for GPUs, and the plan is for CPUs ({self.device.name})")

    @property
    def name(self) -> str:
        pick = self.plan.pick.candidate
        words = re.sub(r"[^a-z0-9]+", "-", f"{self.plan.workload.network}-{pick.strategy.name}".lower())
        return self.settings.name or words.lstrip("-0123456789")[:MOST_NAME].rstrip("-") or "paceline"

    @property
    def machine(self) -> Machine:
        return self.plan.machine

    @property
    def device(self) -> Device:
        name = self.plan.pick.candidate.device
        found = [each.device for each in self.machine.devices if each.device.name == name]
        if not found:
            raise InputError(f"the plan's machine {self.machine.name!r} has no device {name!r}: make the plan again")
        return found[0]

    @property
    def machines(self) -> int:
        """Machines with workers."""
        return self.plan.pick.candidate.machines

    @property
    def nodes(self) -> int:
        """All machines, with one for the server if the plan has one."""
        return self.plan.pick.machines

    @property
    def workers_per_machine(self) -> int:
        return self.plan.pick.candidate.workers_per_machine

    @property
    def gpus(self) -> int:
        """Per machine with workers."""
        return self.workers_per_machine if self.device.kind == "gpu" else 0

    @property
    def worker_cpus(self) -> float:
        """An equal share of the machine's vCPUs; one of them is left to the system where that is possible."""
        vcpus = self.machine.vcpus or 1
        return self.settings.worker_cpus or max(1, (vcpus - 1) // self.workers_per_machine)

    @property
    def cpus(self) -> int:
        """Per machine with workers."""
        return math.ceil(self.worker_cpus * self.workers_per_machine)

    @property
    def head_cpus(self) -> int:
        """Of the first machine, for workers: none if the plan has a machine for the server."""
        return self.cpus if self.nodes == self.machines else 0

    @property
    def head_gpus(self) -> int:
        return self.gpus if self.nodes == self.machines else 0

    @property
    def memory_mib(self) -> int | None:
        """For a container; None if the machine's memory is not known."""
        size = self.machine.memory_bytes
        return None if size is None else int(MEMORY_SHARE * size / 2**20)

    @property
    def spot(self) -> bool:
        return self.plan.objective.spot

    @property
    def cloud(self) -> str:
        return self.settings.cloud or cloud_of(self.machine)

    @property
    def instance_type(self) -> str:
        """Empty for machines that are not rented, unless it is given."""
        return self.settings.instance_type or (instance_type_of(self.machine, self.cloud) if self.cloud else "")

    def command(self, out: str) -> list[list[str]]:
        """The words of the command that trains and keeps the run in `out`, or continues the run there."""
        if self.settings.from_checkpoint:
            return resume_command(worker_cpus=self.worker_cpus, out=out)
        return train_command(self.plan, on_gpu=bool(self.gpus), worker_cpus=self.worker_cpus, out=out)

    @property
    def summary(self) -> list[str]:
        """What the plan says, for a comment at the top."""
        pick, machine = self.plan.pick, self.machine
        price = machine.spot_price_per_hour if self.spot else machine.price_per_hour
        lines = [
            f"{self.plan.workload.network} on {self.plan.workload.data}: {pick}",
            f"Predicted: {time_words(pick.time_s)} (90 % interval: {time_words(pick.low_s)} to "
            f"{time_words(pick.high_s)}), {money_words(pick.money, self.plan.currency)}",
        ]
        if price is not None:
            kind, date = "spot price" if self.spot else "price", machine.price_date or "an unknown date"
            lines.append(f"{machine.name}: {kind} {price:g} {machine.currency} per hour, of {date}")
        return [" ".join(line.split()) for line in lines]
