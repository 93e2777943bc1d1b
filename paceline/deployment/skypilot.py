"""A SkyPilot task: machines of a cloud, of the plan's type and with its accelerators, on demand or spot.

SkyPilot runs a Ray of its own on every node, on other ports. The task starts a second one, at Ray's usual port.
"""

from __future__ import annotations

from paceline.cluster import Device, find_device
from paceline.deployment.planned_cluster import PlannedCluster
from paceline.deployment.templating import fill_in, lines_of
from paceline.errors import InputError

RESULTS = "/results"
"""Where a bucket is mounted."""
RUNS = "runs"
"""On the disk of the first node."""
INSTALL = "pip install 'paceline[ray]'"
ACCELERATORS = (
    "A10", "A100", "A100-80GB", "A10G", "B200", "GH200", "H100", "H200", "K80", "L4", "L40S", "MI300X", "P100", "T4",
    "V100", "V100-32GB",
)  # fmt: skip
"""As SkyPilot names them; the catalogue of devices knows these names."""


def task(cluster: PlannedCluster) -> str:
    bucket = cluster.settings.storage
    if bucket is not None and "://" not in bucket:
        raise InputError(f"`storage={bucket!r}` should be a bucket, e.g. s3://NAME or gs://NAME")
    region = cluster.machine.region if cluster.settings.cloud is None else ""
    return fill_in(
        "skypilot.yaml", cluster, command=lines_of(cluster.command(f"{RESULTS if bucket else RUNS}/{cluster.name}")),
        infra=f"{cluster.cloud}/{region}".strip("/"), bucket=bucket, results=RESULTS,
        accelerators=f"{_accelerator(cluster.device)}:{cluster.machine.count('gpu')}" if cluster.gpus else None,
        setup=cluster.settings.setup or (None if cluster.settings.image else INSTALL),
        head_cpus=cluster.head_cpus, head_gpus=cluster.head_gpus,
    )  # fmt: skip


def _accelerator(device: Device) -> str:
    """SkyPilot's name of a device; of one it is not known to have, our own."""
    names = (name for name in ACCELERATORS if find_device(name).name == device.name)
    return next(names, device.name.replace(" ", "-"))
