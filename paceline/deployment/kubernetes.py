"""A RayJob for KubeRay, and the PersistentVolumeClaim that keeps the run.

KubeRay starts a head pod and the worker pods, waits until they are ready, runs the command on the head and deletes the
pods afterwards. The head is small and takes no workers, so that only machines with workers are of the plan's type.
"""

from __future__ import annotations

from paceline.deployment.cloud import SPOT_LABELS
from paceline.deployment.planned_cluster import PlannedCluster
from paceline.deployment.settings import IMAGE
from paceline.deployment.templating import fill_in, lines_of
from paceline.errors import InputError

RESULTS = "/results"
GPU = "nvidia.com/gpu"


def rayjob(cluster: PlannedCluster) -> str:
    spot = SPOT_LABELS.get(cluster.cloud) if cluster.spot else None
    if cluster.spot and spot is None:
        raise InputError(
            f"the plan is for spot machines, whose node labels are known for {', '.join(SPOT_LABELS)} only: "
            "give one of them as `cloud`"
        )
    return fill_in(
        "rayjob.yaml", cluster, command=lines_of(cluster.command(f"{RESULTS}/{cluster.name}")), spot=spot,
        image=cluster.settings.image or IMAGE, results=RESULTS,
        claim=cluster.settings.storage or f"{cluster.name}-results",
        gpu=cluster.settings.gpu_resource or GPU,
    )  # fmt: skip
