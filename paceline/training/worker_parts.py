"""What each worker of a distributed run computes with, and its launcher too: devices, threads, network, data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import torch

from paceline.data.dataset import Arrays, Dataset
from paceline.data.ray_rows import check_without_ray
from paceline.data.samples import Samples
from paceline.held_objects import is_held, save_held
from paceline.step.build import assemble, build_network, example_of, load_data, placed_network
from paceline.step.feeder import Feeder, FileFeeder, HostFeeder, SampleFeeder
from paceline.step.order import Order, order_of
from paceline.step.phase import Phase, phases_of
from paceline.step.placement import available_cores, choose_device, choose_threads
from paceline.step.randomness import default_generator
from paceline.step.step import Parts
from paceline.strategy.learner import Learner
from paceline.workload import Workload, with_settings


@dataclass(frozen=True)
class MachineShare:
    """Each worker's share of the machine."""

    devices: list[str]
    threads: int
    notes: list[str]


def share_machine(workload: Workload, dataset: Dataset, workers: int, server_threads: int = 1) -> MachineShare:
    """Devices in turn; threads so that all workers together have no more than there are cores.

    A server with a single thread works while workers wait or little at all, and gets no core of its own.
    """
    check_without_ray(dataset)
    network = build_network(workload, dataset)
    device, note = choose_device(workload.device)
    notes = [note] if note else []
    if device.type == "cuda" and workload.device in ("auto", "cuda"):
        devices = [f"cuda:{worker % torch.cuda.device_count()}" for worker in range(workers)]
    else:
        devices = [str(device)] * workers
    cores = available_cores()
    serving = server_threads if server_threads > 1 else 0
    most = workload.threads or max(1, (cores - serving) // workers)
    threads = min(choose_threads(workload.threads, network, example_of(workload, dataset), workload.batch), most)
    if workers * threads + serving > cores and device.type == "cpu":
        each = f"{threads} thread{'s' * (threads != 1)} each" + (f" and {serving} server threads" if serving else "")
        notes.append(f"{workers} workers with {each} share {cores} cores: they will wait for each other")
    return MachineShare(devices, threads, notes)


def phases_at_once(workload: Workload, learner: Learner, phases: Sequence[Phase]) -> list[str]:
    """A line for a strategy that exchanges gradients of several phases together."""
    if learner.exchange.local_optimizer or learner.turns.count > 1:
        return []
    first = [phase.name for phase in phases if phase.rule.trains_in(0)]
    if len(first) < 2:
        return []
    return [
        f"{workload.network}: workers compute the gradients of {', '.join(map(repr, first))} with the same parameters, "
        "not one after the other as one process does; `strategy='sync'` trains them in turn"
    ]


def launcher_parts(workload: Workload, dataset: Dataset, share: MachineShare) -> Parts:
    """The network for validation, and a feeder that is only asked for its order: the launcher trains nothing."""
    device = torch.device(share.devices[0])
    workload = with_settings(workload, {"threads": share.threads})
    network = placed_network(workload, dataset, device)
    order = order_of(dataset.train, workload.batch, workload.seed)
    feeder = idle_feeder(dataset, order, device)
    phases = phases_of(workload, network)
    return Parts(workload, dataset, network, phases, feeder, device, default_generator(device), random=False)


def idle_feeder(dataset: Dataset, order: Order, device: torch.device) -> Feeder:
    part = dataset.train
    if isinstance(part, Arrays):
        return HostFeeder(part, order, dataset.prepare, device)
    if isinstance(part, Samples):
        return SampleFeeder(part, order, dataset.prepare, device)
    return FileFeeder(part, order, dataset.prepare, device, training=True, readers=1)


def worker_parts(
    workload: Workload, cache: Path | None, device: str, threads: int, workers: int, dataset: Dataset | None = None
) -> Parts:
    """The network and the data of one of `workers` workers, on its device and with its threads. `dataset`: where the
    worker cannot load it by itself."""
    workload = with_settings(workload, {"threads": threads, "device": device})
    parts = assemble(workload, dataset or load_data(workload, cache), torch.device(device))
    if isinstance(parts.feeder, FileFeeder):
        parts.feeder.readers = max(1, available_cores() // workers)
    return parts


def saved_objects(workload: Workload, folder: Callable[[], Path]) -> str:
    """The file of the objects that the user gave in Python for this workload; empty where there are none."""
    texts = {f.name: value for f in fields(workload) if isinstance(value := getattr(workload, f.name), str)}
    if not any(is_held(text) for text in texts.values()):
        return ""
    path = folder() / "objects"
    save_held(path, texts)
    return str(path)
