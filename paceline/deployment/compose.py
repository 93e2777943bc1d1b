"""A Docker compose file: a head and its workers as containers of one machine, to try a plan or to use a large machine.

Containers stand for the plan's machines. GPUs are the host's, so that one container has those of all workers.
"""

from __future__ import annotations

from paceline.deployment.planned_cluster import PlannedCluster
from paceline.deployment.settings import IMAGE
from paceline.deployment.templating import fill_in, lines_of

RESULTS = "/results"
VOLUME = "results"


def compose_file(cluster: PlannedCluster) -> str:
    volume = cluster.settings.storage or VOLUME
    containers = 1 if cluster.gpus else cluster.machines
    command = lines_of(cluster.command(f"{RESULTS}/{cluster.name}"))
    return fill_in(
        "compose.yaml", cluster, command=[_escaped(line) for line in command],
        image=_escaped(cluster.settings.image or IMAGE), volume=_escaped(volume), results=RESULTS,
        named_volume="/" not in volume, containers=containers,
        cpus=cluster.cpus * cluster.machines // containers, gpus=cluster.gpus * cluster.machines // containers,
    )  # fmt: skip


def _escaped(text: str) -> str:
    """Compose replaces variables in every text."""
    return text.replace("$", "$$")
