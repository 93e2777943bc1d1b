"""What the launcher decides before any process is started: devices, threads, sizes, and who commits updates."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from paceline.data.dataset import Arrays, Dataset
from paceline.data.samples import Samples
from paceline.errors import WorkloadError
from paceline.step.build import assemble, build_network, example_of, load_data, placed_network
from paceline.step.feeder import Feeder, FileFeeder, HostFeeder, SampleFeeder
from paceline.step.order import Order
from paceline.step.phase import phases_of
from paceline.step.placement import available_cores, choose_device, choose_threads
from paceline.step.randomness import default_generator
from paceline.step.step import Parts
from paceline.strategy.layout import Layout
from paceline.strategy.strategy import Strategy
from paceline.strategy.updater import Updater
from paceline.training.drivers.local.settings import ProcessSettings
from paceline.training.drivers.local.shared_memory import Sizes, StateTensor
from paceline.workload import Workload, with_settings

MOST_COMMITTED = 1 << 20
"""Numbers up to which a worker's own update takes less time than it takes to wake the server."""
MOST_AHEAD, SUPPLIES_PER_EPOCH = 32, 8


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


def launcher_parts(workload: Workload, dataset: Dataset, share: MachineShare) -> Parts:
    """The network for validation, and a feeder that is only asked for its order: the launcher trains nothing."""
    device = torch.device(share.devices[0])
    workload = with_settings(workload, {"threads": share.threads})
    network = placed_network(workload, dataset, device)
    order = Order(len(dataset.train), workload.batch, workload.seed)
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


def why_server_commits(strategy: Strategy, updater: Updater, workers: int, device: str, collective: str) -> str:
    """Why workers do not make updates by themselves; empty: they do.

    They do where every payload, or every round of a group, is one update, and a short one: a large network's update
    takes so long that it should be made beside the next gradient.
    """
    if device != "cpu":
        return "gradients are on a GPU"
    if collective != "shared":
        return f"groups average with {collective}"
    if strategy.payloads_per_update(workers) > 1:
        return "an update waits for several payloads"
    if strategy.backup_workers:
        return "rounds continue without backup workers"
    if strategy.staleness_bound is not None:
        return "the server keeps the staleness bound"
    if strategy.warm_start:
        return "the first updates are the first worker's"
    if updater.correction is not None and not updater.correction.elementwise:
        return f"correction {strategy.correction} is the user's own"
    if not all(optimizer.elementwise for optimizer in updater.optimizers):
        return f"server optimizer {strategy.server_optimizer} is not one of ours"
    if updater.layout.size > MOST_COMMITTED:
        return f"{updater.layout.size:,} parameters are updated beside the next gradient"
    return ""


def sizes_of(strategy: Strategy, layout: Layout, workers: int, *, record_events: bool, workers_commit: bool) -> Sizes:
    updater = Updater(strategy, layout, workers)
    groups = workers if strategy.groups is None else strategy.groups
    batches = layout.batches * (workers if strategy.full_pass_per_worker else 1)
    supply = batches // strategy.push_every // (SUPPLIES_PER_EPOCH * workers)
    alone = strategy.groups is None
    own_copy = workers_commit and strategy.one_batch_per_task
    return Sizes(
        workers=workers,
        groups=groups,
        numbers=layout.size,
        payload=updater.encoded + layout.buffers,
        dtype=layout.dtype,
        state=tuple(StateTensor.of(name, tensor) for name, tensor in updater.initial_state().items()),
        corrections=tuple(StateTensor.of(name, t) for name, t in updater.initial_correction_state().items()),
        batches=batches,
        epochs=layout.epochs,
        longest=min(strategy.push_every, batches),
        snapshots=strategy.groups is not None and strategy.groups > 1,
        fetched=updater.needs_fetched and alone and not own_copy,
        events=_event_words(batches * layout.epochs) if record_events else 0,
        ahead=min(max(supply, 2), MOST_AHEAD) if workers_commit else 2,
        workers_commit=workers_commit,
    )


def _event_words(batches: int) -> int:
    """Room for every task and update, and for some that had to be repeated."""
    words = batches * 40
    if words * 8 > 1 << 30:
        raise WorkloadError(f"{batches:,} batches are too many to record every event: train fewer epochs")
    return words + 4096


def worker_parts(settings: ProcessSettings) -> Parts:
    """The network and the data of a worker, on its device and with its threads."""
    cache = Path(settings.cache) if settings.cache else None
    workload = with_settings(settings.workload, {"threads": settings.threads, "device": settings.device})
    parts = assemble(workload, load_data(workload, cache), torch.device(settings.device))
    if isinstance(parts.feeder, FileFeeder):
        parts.feeder.readers = max(1, available_cores() // settings.workers)
    return parts
