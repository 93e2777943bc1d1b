"""A Slurm batch script: Ray's head in the batch step on the first node, its workers over srun on the others."""

from __future__ import annotations

import math

from paceline.deployment.planned_cluster import PlannedCluster
from paceline.deployment.templating import fill_in, lines_of

RUNS = "runs"
TIME_FACTOR = 2.0
"""Of the upper end of the predicted time: queues kill what takes longer than it asked for."""
LEAST_TIME_S = 1800.0
"""Starting, downloading and compiling are not in the prediction."""


def batch_script(cluster: PlannedCluster) -> str:
    return fill_in(
        "slurm.sh", cluster, command=lines_of(cluster.command(f"{cluster.settings.storage or RUNS}/{cluster.name}")),
        time_limit=cluster.settings.time_limit or _time_limit(cluster.plan.pick.high_s),
        head_cpus=cluster.head_cpus, head_gpus=cluster.head_gpus,
    )  # fmt: skip


def _time_limit(predicted_s: float) -> str:
    """As DAYS-HH:MM:SS, in whole minutes."""
    minutes = math.ceil(max(LEAST_TIME_S, TIME_FACTOR * predicted_s) / 60)
    days, rest = divmod(minutes, 24 * 60)
    return f"{days}-{rest // 60:02}:{rest % 60:02}:00"
