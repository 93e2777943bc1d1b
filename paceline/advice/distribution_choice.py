"""Data parallelism, model parallelism or neither, and how workers synchronise: by rule, or as simulated."""

from __future__ import annotations

import math
from dataclasses import dataclass

from paceline.advice.advice import Choice
from paceline.advice.data_facts import DataFacts
from paceline.advice.hardware import HardwareOption
from paceline.cost.prediction import Prediction
from paceline.errors import PacelineError
from paceline.formatting import count, duration, percent
from paceline.free_memory import memory_size
from paceline.simulation.on_cluster import ClusterOutcome, simulate_on
from paceline.strategy.presets import find_strategy
from paceline.workload import Workload

MOST_SYNCHRONOUS = 40
"""Devices up to which synchronous training is fine; beyond, groups that are synchronous inside (Wünsche 2018)."""
CLEARLY = 1.1
"""Ratio of two simulated times from which the simulation decides, not the rule."""
SHORT_S = 30.0
"""A training that is not worth distributing."""
MEMORY_SHARE = 0.9
"""Of a device, that a training may use."""
UPDATES_PER_EPOCH = 10
"""The fewest joined updates per epoch that workers should leave."""


@dataclass(frozen=True)
class DistributionChoice:
    workers: int
    strategy: str
    epoch_s: float
    """NaN if it is not known."""
    parallelism: Choice
    synchronisation: Choice
    pipeline: int = 1
    """Stages that one network is divided into."""
    tensor: int = 1
    """Devices that each linear layer is divided among."""
    groups: int = 1
    """Synchronous groups of workers."""


@dataclass(frozen=True)
class _Simulated:
    workers: int
    strategy: str
    groups: int
    outcome: ClusterOutcome


ONE = Choice("synchronisation", "none", "a single device has nothing to synchronise with")


def choose_distribution(
    workload: Workload, facts: DataFacts, option: HardwareOption, devices: int, prediction: Prediction | None
) -> DistributionChoice:
    epoch_s = math.nan if prediction is None else prediction.epoch_s
    if prediction is not None and not holds(option, prediction):
        return _divided(option, devices, prediction)
    if devices == 1:
        why = "the network fits on the only device" if prediction else "there is only one device"
        return DistributionChoice(1, "", epoch_s, Choice("parallelism", "none", why), ONE)
    if epoch_s * workload.epochs < SHORT_S:
        took = f"the whole training takes {duration(epoch_s * workload.epochs)} on one device: more would not help"
        return DistributionChoice(1, "", epoch_s, Choice("parallelism", "none", took), ONE)
    most = max(1, min(devices, facts.samples // (UPDATES_PER_EPOCH * workload.batch)))
    if most == 1:
        why = f"{facts.samples:,} samples are too few to divide: an epoch would have fewer than 10 updates"
        return DistributionChoice(1, "", epoch_s, Choice("parallelism", "none", why), ONE)
    if prediction is None or option.machine is None:
        return _by_rule(most)
    return _as_simulated(option, prediction, most, devices)


def holds(option: HardwareOption, prediction: Prediction) -> bool:
    """Whether one device holds the training; memory of unknown size is no limit."""
    return option.memory_bytes is None or prediction.memory_bytes <= MEMORY_SHARE * option.memory_bytes


def _divided(option: HardwareOption, devices: int, prediction: Prediction) -> DistributionChoice:
    """The network over several devices: as stages of a pipeline, or each layer by feature where the layers are few."""
    assert option.memory_bytes is not None
    stages = math.ceil(prediction.memory_bytes / (MEMORY_SHARE * option.memory_bytes))
    needed, memory = memory_size(prediction.memory_bytes), memory_size(option.memory_bytes)
    why = f"training needs {needed} of memory, and a {option.name} has {memory}"
    layers = sum(layer.update_s > 0 for layer in prediction.layers)
    halves = 2 ** math.ceil(math.log2(stages))  # features divide by powers of two
    by_feature = layers < stages and halves <= devices
    if by_feature:
        why += f", more than {count(layers, 'layer')} can share as stages, so each is divided by feature among {halves}"
    else:
        why += f", so its layers are divided into {stages} stages"
    if not by_feature and stages > min(devices, layers):
        there = f"{count(devices, 'device')} and {count(layers, 'layer')}"
        why += f"; with {there}, take a device with more memory or a smaller network"
    told = "all parts of the network compute the same batch and are updated together"
    return DistributionChoice(
        1, "", math.nan, Choice("parallelism", "model", why), Choice("synchronisation", "none", told),
        *((1, halves) if by_feature else (stages, 1)),
    )  # fmt: skip


def _by_rule(workers: int) -> DistributionChoice:
    parallel = Choice(
        "parallelism", "data", f"samples can be divided among {workers} devices; the time was not predicted"
    )
    mixed = workers > MOST_SYNCHRONOUS
    why = f"up to about {MOST_SYNCHRONOUS} devices, waiting for the slowest costs little"
    if mixed:
        why = f"with more than about {MOST_SYNCHRONOUS} devices, only those of a group wait for each other"
    strategy = "mixed" if mixed else "sync"
    return DistributionChoice(workers, strategy, math.nan, parallel, Choice("synchronisation", strategy, why))


def _as_simulated(option: HardwareOption, prediction: Prediction, most: int, devices: int) -> DistributionChoice:
    found = [made for workers in _numbers(most) for made in _simulated(option, prediction, workers)]
    alone_s = prediction.epoch_s
    if not found or alone_s < CLEARLY * min(made.outcome.epoch_s for made in found):
        best = min((made.outcome.epoch_s for made in found), default=math.nan)
        why = f"an epoch takes {duration(alone_s)} on one device and {duration(best)} on the best number of several"
        return DistributionChoice(1, "", alone_s, Choice("parallelism", "none", why, alone_s), ONE)
    fastest_s = min(made.outcome.epoch_s for made in found)
    workers = min(made.workers for made in found if made.outcome.epoch_s <= CLEARLY * fastest_s)
    pick, why = _synchronised([made for made in found if made.workers == workers])
    epoch_s = pick.outcome.epoch_s
    used = "" if workers == devices else f" ({devices} would not be clearly faster)"
    reason = (
        f"an epoch takes {duration(alone_s)} on one device and {duration(epoch_s)} on {workers}{used}, "
        f"{percent(pick.outcome.communication_share + pick.outcome.waiting_share, 0)} of it exchange and waiting; "
        f"{workers * prediction.batch:,} samples are computed at a time"
    )
    parallel = Choice("parallelism", "data", reason, epoch_s)
    return DistributionChoice(
        workers,
        pick.strategy,
        epoch_s,
        parallel,
        Choice("synchronisation", pick.strategy, why, pick.outcome.step_s),
        groups=pick.groups,
    )


def _numbers(most: int) -> list[int]:
    """2, 4, 8, … and the most."""
    return sorted({*(2**power for power in range(1, most.bit_length()) if 2**power <= most), most})


def _simulated(option: HardwareOption, prediction: Prediction, workers: int) -> list[_Simulated]:
    """Synchronous, and in groups of one machine each where there are several."""
    assert option.machine is not None
    machines = -(-workers // option.per_machine)
    ways = [("sync", 1), *([("mixed", machines)] if machines > 1 and workers % machines == 0 else [])]
    found = []
    for name, groups in ways:
        strategy = find_strategy(name, **({} if groups == 1 else {"groups": groups}))
        try:
            outcome = simulate_on(
                prediction, option.machine, workers, strategy, network=option.machine.network,
                workers_per_machine=option.per_machine, steps=max(24, min(200, 4000 // workers)),
            )  # fmt: skip
        except PacelineError:
            continue
        found.append(_Simulated(workers, name, groups, outcome))
    return found


def _synchronised(found: list[_Simulated]) -> tuple[_Simulated, str]:
    """The simulation decides where it sees a clear difference, else the rule of about 40 devices."""
    by_name = {made.strategy: made for made in found}
    if len(by_name) == 1:
        (only,) = found
        return only, f"all {count(only.workers, 'device')} are in one machine, so waiting for the slowest costs little"
    sync, mixed = by_name["sync"], by_name["mixed"]
    compared = f"{duration(sync.outcome.step_s)} per step synchronous, {duration(mixed.outcome.step_s)} mixed"
    if sync.outcome.epoch_s > CLEARLY * mixed.outcome.epoch_s:
        return mixed, f"synchronous inside a machine, asynchronous between machines: simulated {compared}"
    if mixed.outcome.epoch_s > CLEARLY * sync.outcome.epoch_s or sync.workers <= MOST_SYNCHRONOUS:
        return sync, f"it trains as one process with the combined batch would: simulated {compared}"
    return (
        mixed,
        f"with more than {MOST_SYNCHRONOUS} devices, only those of a group should wait: simulated {compared}",
    )
