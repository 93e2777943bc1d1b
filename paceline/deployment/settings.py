"""What a plan does not say about the cluster that carries it out, as settings with defaults."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from paceline.errors import InputError, nearest
from paceline.settings import check, read, setting, settings_of

KUBERNETES, SLURM, SKYPILOT, COMPOSE = TARGETS = ("kubernetes", "slurm", "skypilot", "compose")
CLOUDS = ("aws", "gcp", "azure", "lambda")
IMAGE = "paceline"
"""The container image that the repository's Dockerfile builds."""
MOST_NAME = 40
"""KubeRay allows 47 characters; what Kubernetes derives from the name needs some of them."""


def _check_name(name: str | None) -> None:
    if name is not None and not re.fullmatch(rf"[a-z]([a-z0-9-]{{0,{MOST_NAME - 2}}}[a-z0-9])?", name):
        raise InputError(
            f"name={name!r:.60} should be at most {MOST_NAME} lower-case letters, digits and dashes, and begin with a "
            "letter"
        )


def _check_line(text: str | None) -> None:
    if text is not None and not text.isprintable():
        raise InputError(f"{text!r:.60} should be on one line")


def _check_size(text: str) -> None:
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)?(Mi|Gi|Ti)", text):
        raise InputError(f"{text!r:.60} should be a size in Kubernetes notation, e.g. 20Gi")


def _check_time(text: str | None) -> None:
    if text is not None and not re.fullmatch(r"([0-9]+-)?[0-9]{1,2}:[0-9]{2}:[0-9]{2}", text):
        raise InputError(f"time_limit={text!r:.60} should be HH:MM:SS or DAYS-HH:MM:SS, e.g. 12:00:00")


@dataclass(frozen=True)
class DeploymentSettings:
    """`runs` of a setting are the kinds of cluster that it is for; none: all."""

    COMMON: ClassVar[dict[str, Any]] = {"group": "Cluster"}

    name: str | None = setting(None, "Name of the job; default: network and strategy.", check=_check_name)
    image: str | None = setting(
        None, f"Container image that has Paceline installed; default {IMAGE}, on SkyPilot none.",
        runs=(KUBERNETES, SKYPILOT, COMPOSE), check=_check_line, metavar="IMAGE",
    )  # fmt: skip
    storage: str | None = setting(
        None, "Where the run is stored: a PersistentVolumeClaim, a directory shared by all Slurm nodes, a bucket "
        "(s3://NAME) for SkyPilot, a volume or directory for Compose.", check=_check_line, metavar="PLACE",
    )  # fmt: skip
    storage_size: str = setting(
        "20Gi", "Size of a new PersistentVolumeClaim.", runs=(KUBERNETES,), check=_check_size,
        metavar="SIZE",
    )  # fmt: skip
    worker_cpus: float | None = setting(None, "CPUs per worker; default: an equal share of the machine's.", above=0)
    from_checkpoint: bool = setting(False, "Resume the run in the storage.")
    namespace: str | None = setting(
        None, "Kubernetes namespace; default: the current one.", runs=(KUBERNETES,), check=_check_line, metavar="NAME"
    )
    head_cpus: int = setting(4, "CPUs of the head node, which also validates.", runs=(KUBERNETES,), least=1)
    head_memory: str = setting(
        "16Gi", "Memory of the head node.", runs=(KUBERNETES,), check=_check_size, metavar="SIZE"
    )
    cloud: str | None = setting(
        None, "Cloud provider (default: that of the plan's machine).", runs=(KUBERNETES, SKYPILOT),
        choices=CLOUDS, metavar="CLOUD",
    )  # fmt: skip
    instance_type: str | None = setting(
        None, "Instance type of the workers; default: the plan's, if the cloud has it.", runs=(KUBERNETES, SKYPILOT),
        check=_check_line, metavar="TYPE",
    )  # fmt: skip
    gpu_resource: str | None = setting(
        None, "Kubernetes resource name of a GPU; default nvidia.com/gpu.", runs=(KUBERNETES,), check=_check_line,
        metavar="NAME",
    )  # fmt: skip
    partition: str | None = setting(
        None, "Slurm partition; default: the cluster's.", runs=(SLURM,), check=_check_line, metavar="NAME"
    )
    account: str | None = setting(
        None, "Slurm account to charge the job to.", runs=(SLURM,), check=_check_line, metavar="NAME"
    )
    time_limit: str | None = setting(
        None, "Slurm time limit; default: twice the upper end of the predicted time.", runs=(SLURM,), check=_check_time,
        metavar="HH:MM:SS",
    )  # fmt: skip
    setup: str | None = setting(
        None, "Shell command that makes paceline and ray available on a node; SkyPilot's default is a pip install.",
        runs=(SLURM, SKYPILOT), check=_check_line, metavar="COMMAND",
    )  # fmt: skip

    def __post_init__(self) -> None:
        check(self, InputError)


def read_settings(target: str, given: Mapping[str, Any]) -> DeploymentSettings:
    """The settings for a target; one that is for others is refused."""
    if target not in TARGETS:
        raise InputError(f"no target {target!r:.60}: {nearest(str(target), TARGETS)}")
    found = read(DeploymentSettings, given, InputError, "deploy")
    for name in found:
        targets = settings_of(DeploymentSettings)[name].runs
        if targets and target not in targets:
            raise InputError(f"`{name}` is for {' and '.join(targets)}, not for {target}")
    return DeploymentSettings(**found)
