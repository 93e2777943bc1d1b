"""Decisions of the driver process before any actor starts: the resources of each worker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from paceline.data.dataset import Dataset
from paceline.step.build import build_network, example_of
from paceline.step.placement import choose_device, choose_threads
from paceline.training.drivers.ray.connection import Shares
from paceline.training.worker_parts import MachineShare
from paceline.workload import Workload


@dataclass(frozen=True)
class ClusterShare:
    """The resources of each worker, and the device on which the driver process validates."""

    shares: Shares
    device: str
    threads: int
    of_launcher: MachineShare
    notes: tuple[str, ...] = ()


def share_cluster(ray: Any, workload: Workload, dataset: Dataset, workers: int, cpus: float) -> ClusterShare:
    """One GPU per worker if the workload may use GPUs and the cluster has enough, otherwise `cpus` CPUs."""
    gpus = ray.cluster_resources().get("GPU", 0.0)
    on_gpu = workload.device.startswith("cuda") or (workload.device == "auto" and gpus >= workers)
    asked = "auto" if on_gpu else workload.device
    device, note = choose_device(asked)
    network = build_network(workload, dataset)
    most = max(1, int(cpus))
    threads = min(choose_threads(workload.threads, network, example_of(workload, dataset), workload.batch), most)
    threads = workload.threads or threads
    notes = (note,) if note and not on_gpu else ()
    return ClusterShare(
        Shares(cpus, 1.0 if on_gpu else 0.0), "cuda:0" if on_gpu else "cpu", threads,
        MachineShare([str(device)], threads, []), notes,
    )  # fmt: skip
