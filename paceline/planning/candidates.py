"""Lists all candidates: machines, numbers of workers, strategies, batch sizes and precisions."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from paceline.cluster import Device
from paceline.errors import InputError
from paceline.planning.candidate import ONE_PROCESS, Candidate, joins_batches
from paceline.planning.estimate import machines_needed
from paceline.planning.machine_options import MachineOption, MachineOptions
from paceline.strategy.presets import find_strategy
from paceline.strategy.strategy import Strategy
from paceline.training.settings import ParallelSettings
from paceline.workload import Workload

STRATEGIES = (
    *("sync", "downpour", "delay-compensated", "mixed", "stale-sync", "softsync", "backup", "local-sgd", "diloco"),
    "easgd",
)  # fmt: skip
"""Compressed exchanges are opt-in, because their effect on convergence depends on the network."""
BATCH_FACTORS = (0.5, 1, 2, 4)
PERIOD = 50
"""Local steps between two exchanges of parameters."""
MIN_ROUNDS = 2
"""Minimum exchanges per epoch for strategies that exchange rarely."""
MIN_WORKERS_FOR_GROUPS = 4
"""With fewer workers several groups make no difference."""
WORKERS_PER_BACKUP = 4
"""Minimum workers per backup worker."""
TOO_MANY_WORKERS = "have more workers than an epoch has batches"
NO_SERVER = "leave no machine for the server"


@dataclass(frozen=True)
class Listed:
    """The candidates, the machine option of each, and what was left out."""

    candidates: tuple[Candidate, ...]
    places: tuple[MachineOption, ...]
    """One per candidate."""
    excluded: dict[str, int]


def list_candidates(
    workload: Workload, places: MachineOptions, samples: int, strategies: Sequence[str | Strategy] = STRATEGIES,
    too_large: Callable[[Device], bool] = lambda _: False,
) -> Listed:  # fmt: skip
    """`samples` per epoch; strategies are preset names, module:name, or objects. `too_large`: whether the network needs
    more memory than a device has; it may be divided among several of them."""
    found = [find_strategy(strategy) for strategy in strategies]
    if not (batches := batches_of(workload, samples)):
        raise InputError(f"an epoch of {samples:,} samples has no batch of {workload.batch:,}: give a smaller `batch`")
    candidates, where, excluded = [], [], Counter(places.excluded)
    for place in places.places:
        for batch in batches:
            divided = _divided_on(place, workload, batch, found) if too_large(place.device) else iter(())
            for made in (*_on(place, workload, batch, -(-samples // batch), found), *divided):
                if made.copies > -(-samples // batch):
                    excluded[TOO_MANY_WORKERS] += 1
                elif machines_needed(made, place) > place.available:
                    excluded[NO_SERVER] += 1
                else:
                    candidates.append(made)
                    where.append(place)
    return Listed(tuple(candidates), tuple(where), dict(excluded))


def _on(
    place: MachineOption, workload: Workload, batch: int, batches: int, strategies: Sequence[Strategy]
) -> Iterator[Candidate]:
    machine, device = place.machine.name, place.device.name
    for workers, per_machine in place.worker_layouts():
        for strategy in _fitted(strategies, workers, per_machine, batches):
            for precision in precisions_of(workload, place.device):
                yield Candidate(machine, device, workers, per_machine, strategy, batch, precision)


def _divided_on(
    place: MachineOption, workload: Workload, batch: int, strategies: Sequence[Strategy]
) -> Iterator[Candidate]:
    """One network over the devices of a machine: as a pipeline, by feature, or with sharded parameters."""
    if workload.precision not in ("float32", "float64"):
        return
    for devices, per_machine in place.worker_layouts():
        if not 1 < devices == per_machine:
            continue
        whole = Candidate(
            place.machine.name, place.device.name, devices, devices, ONE_PROCESS, batch, workload.precision
        )
        count = ParallelSettings(pipeline=devices).microbatches_of(batch)
        if count >= devices:
            yield dataclasses.replace(whole, pipeline=devices, microbatches=count)
        yield dataclasses.replace(whole, tensor=devices)
        for strategy in filter(joins_batches, strategies):  # sharded workers are synchronous ones
            yield dataclasses.replace(whole, strategy=strategy, shard="fsdp")
            break


def batches_of(workload: Workload, samples: int) -> list[int]:
    """The workload's batch size, half of it, twice and four times it."""
    sizes = {int(workload.batch * factor) for factor in BATCH_FACTORS}
    return sorted(size for size in sizes if 1 <= size <= samples)


def precisions_of(workload: Workload, device: Device) -> list[str]:
    """float32 and all precisions with a peak in the device's data sheet; an explicit precision is kept."""
    if workload.precision != "float32":
        has = workload.precision == "float64" or device.peak_of(workload.precision) is not None
        return [workload.precision] if has else []
    return ["float32", *(p for p in ("tf32", "bfloat16") if device.peak_of(p) is not None)]


def _fitted(strategies: Sequence[Strategy], workers: int, per_machine: int, batches: int) -> Iterator[Strategy]:
    """Strategies that make sense with this number of workers, with groups and periods adapted. One worker needs
    none."""
    if workers == 1:
        yield ONE_PROCESS
        return
    machines = -(-workers // per_machine)
    for strategy in strategies:
        if strategy.groups is not None and strategy.groups > 1:
            groups = machines if machines > 1 and per_machine > 1 else 2
            if workers >= MIN_WORKERS_FOR_GROUPS and workers % groups == 0:
                yield dataclasses.replace(strategy, groups=groups)
        elif strategy.backup_workers:
            if workers >= WORKERS_PER_BACKUP * strategy.backup_workers:
                yield strategy
        elif strategy.make_exchange.local_optimizer:
            period = min(PERIOD, strategy.push_every, batches // workers // MIN_ROUNDS)
            if period > 1:
                yield dataclasses.replace(strategy, push_every=period, fetch_every=min(strategy.fetch_every, period))
        else:
            yield strategy
