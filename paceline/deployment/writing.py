"""The file for a kind of cluster, and the command that starts what it describes."""

from __future__ import annotations

import shlex
from pathlib import Path

from paceline.deployment.compose import compose_file
from paceline.deployment.kubernetes import rayjob
from paceline.deployment.planned_cluster import PlannedCluster
from paceline.deployment.settings import COMPOSE, KUBERNETES, SKYPILOT, SLURM
from paceline.deployment.skypilot import task
from paceline.deployment.slurm import batch_script

WRITERS = {KUBERNETES: rayjob, SLURM: batch_script, SKYPILOT: task, COMPOSE: compose_file}
START = {
    KUBERNETES: ("kubectl", "apply", "-f", "{file}"),
    SLURM: ("sbatch", "{file}"),
    SKYPILOT: ("sky", "launch", "{file}"),
    COMPOSE: ("docker", "compose", "-f", "{file}", "up", "--exit-code-from", "head"),
}


def deployment_file(target: str, cluster: PlannedCluster) -> str:
    return WRITERS[target](cluster)


def start_command(target: str, file: Path) -> str:
    return " ".join(START[target]).format(file=shlex.quote(str(file)))
