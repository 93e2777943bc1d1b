"""What the launcher needs before any process is started: network, layout, sizes, threads and devices."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import torch

from paceline.data.dataset import Arrays, Dataset
from paceline.errors import WorkloadError
from paceline.step.build import build_network, example_of, placed_network
from paceline.step.feeder import FileFeeder, HostFeeder
from paceline.step.order import Order
from paceline.step.phase import phases_of
from paceline.step.placement import available_cores, choose_device, choose_threads
from paceline.step.randomness import default_generator
from paceline.step.step import Parts
from paceline.strategy.layout import Layout
from paceline.strategy.learner import Learner
from paceline.strategy.server import Server
from paceline.strategy.strategy import Strategy
from paceline.train.local.memory import Memory, Sizes, StateTensor
from paceline.workload import Workload, with_settings

SMALL = 1 << 20
"""Numbers whose update takes about as long as it takes to wake a process."""
AHEAD, SUPPLIES_AN_EPOCH = 32, 8


@dataclass(frozen=True)
class Share:
    """What of the machine each worker gets."""

    devices: list[str]
    threads: int
    notes: list[str]


def share_machine(workload: Workload, dataset: Dataset, workers: int, shards: int = 1) -> Share:
    """Devices in turn; threads so that all workers together have no more than there are cores.

    A single server works while workers wait or little at all, and gets no core of its own. Whoever asks for several
    shards of it has updates that keep them busy.
    """
    network = build_network(workload, dataset)
    device, note = choose_device(workload.device)
    notes = [note] if note else []
    if device.type == "cuda" and workload.device in ("auto", "cuda"):
        devices = [f"cuda:{worker % torch.cuda.device_count()}" for worker in range(workers)]
    else:
        devices = [str(device)] * workers
    cores = available_cores()
    serving = shards if shards > 1 else 0
    most = workload.threads or max(1, (cores - serving) // workers)
    threads = min(choose_threads(workload.threads, network, example_of(workload, dataset), workload.batch), most)
    if workers * threads + serving > cores and device.type == "cpu":
        each = f"{threads} thread{'s' * (threads != 1)} each" + (f" and {serving} server shards" if serving else "")
        notes.append(f"{workers} workers with {each} share {cores} cores: they will wait for each other")
    return Share(devices, threads, notes)


def launcher_parts(workload: Workload, dataset: Dataset, share: Share) -> Parts:
    """The network for tests, and a feeder that is only asked for its order: the launcher trains nothing."""
    device = torch.device(share.devices[0])
    workload = with_settings(workload, {"threads": share.threads})
    network = placed_network(workload, dataset, device)
    order = Order(len(dataset.train), workload.batch, workload.seed)
    part = dataset.train
    feeder = (
        HostFeeder(part, order, dataset.prepare, device)
        if isinstance(part, Arrays)
        else FileFeeder(part, order, dataset.prepare, device, training=True, readers=1)
    )
    phases = phases_of(workload, network)
    return Parts(workload, dataset, network, phases, feeder, device, default_generator(device), random=False)


def sizes_of(
    strategy: Strategy, layout: Layout, workers: int, *, record_events: bool, on_cpu: bool = True, shards: int = 1
) -> Sizes:
    server = Server(strategy, layout, workers)
    groups = workers if strategy.groups is None else strategy.groups
    batches = layout.batches * (workers if strategy.own_pass else 1)
    own_updates = on_cpu and shards == 1 and _make_own_updates(server, workers)
    supply = batches // strategy.push_every // (SUPPLIES_AN_EPOCH * workers)
    return Sizes(
        workers=workers,
        groups=groups,
        snapshots=strategy.groups is not None and strategy.groups > 1,
        pulled=server.needs_backup and strategy.groups is None,
        numbers=layout.size,
        dtype=layout.dtype,
        state=tuple(_described(name, tensor) for name, tensor in server.initial_state().items()),
        corrections=tuple(_described(name, tensor) for name, tensor in server.initial_kept().items()),
        batches=batches,
        epochs=layout.epochs,
        longest=min(strategy.push_every, batches),
        events=_event_words(strategy, batches * layout.epochs) if record_events else 0,
        ahead=min(max(supply, 2), AHEAD) if own_updates else 2,
        own_updates=own_updates,
        shards=shards,
    )


def _make_own_updates(server: Server, workers: int) -> bool:
    """Whether workers make updates themselves: where every payload is one, and takes less time than waking a server.

    A larger network's update takes so long that it should be made beside the next gradient.
    """
    strategy, correction = server.strategy, server.correction
    one_by_one = strategy.groups is None and strategy.payloads_an_update(workers) == 1 and strategy.bound is None
    built_in = correction is None or correction.elementwise
    return one_by_one and built_in and server.layout.size <= SMALL


def lay_down(memory: Memory, strategy: Strategy, learner: Learner) -> None:
    """What a run begins with: version 0 of the parameters and of the server's optimizer."""
    memory.parameters[0].copy_(learner.initial())
    for name, tensor in Server(strategy, learner.layout, learner.workers).initial_state().items():
        memory.states[0][name].copy_(tensor)  # not all of it is zero


def _described(name: str, tensor: torch.Tensor) -> StateTensor:
    return StateTensor(name, tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))


def _event_words(strategy: Strategy, batches: int) -> int:
    """Room for every task and update, and for some that had to be repeated."""
    words = batches * 40
    if words * 8 > 1 << 30:
        raise WorkloadError(f"{batches:,} batches are too many to record every event: train fewer epochs")
    return words + 4096


def eventfd() -> int:
    return os.eventfd(0, os.EFD_NONBLOCK)


def cache_text(cache: Path | None) -> str:
    return "" if cache is None else str(cache.resolve())
