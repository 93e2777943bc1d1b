"""`paceline.deploy`: the file that starts the cluster which a plan recommends, and trains on it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.api.planned import load_plan
from paceline.api.settings import as_optional_path

if TYPE_CHECKING:
    from paceline.planning.plan import Plan


def deploy(target: str, plan: Plan | str | Path, out: str | Path | None = None, **settings: Any) -> str:
    """Write the job file that starts the cluster of a plan and trains on it, and return its text.

    `target` is "kubernetes" (a RayJob for KubeRay), "slurm" (a batch script), "skypilot" (a task) or "compose" (a
    Docker compose file, for one machine). `plan` is a `Plan`, its file or its directory. The number and type of
    machines, the accelerators, spot machines and the training command are the plan's pick. `out` is the file to write.

    What a plan does not say are `settings`: `name`, `image`, `storage`, `worker_cpus`, `from_checkpoint` and others
    that `paceline deploy --help` lists. One that the target has no use for is an error.

    >>> made = paceline.plan("lenet5", "g2-standard-48", data="digits", strategies="sync", budget=1000)
    >>> text = paceline.deploy("kubernetes", made, "rayjob.yaml", name="lenet")
    >>> "kind: RayJob" in text, "paceline train lenet5" in text
    (True, True)
    """
    from paceline.deployment.planned_cluster import PlannedCluster
    from paceline.deployment.settings import read_settings
    from paceline.deployment.writing import deployment_file
    from paceline.output_file import write_atomically

    place = as_optional_path(out, "out")
    chosen = read_settings(target, settings)
    text = deployment_file(target, PlannedCluster(load_plan(plan), chosen))
    if place is not None:
        write_atomically(place, text)
    return text
