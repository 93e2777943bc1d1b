"""Whether a plan can run on this machine, and which options would make it run here anyway."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from paceline.cluster import find_device
from paceline.cluster.checks import plain
from paceline.errors import InputError
from paceline.planning.plan import Plan
from paceline.strategy.strategy import Strategy

ALIASES = 0.12
"""Relative difference in memory up to which two devices count as the same."""


@dataclass(frozen=True)
class Hardware:
    """The devices of this machine."""

    gpus: tuple[str, ...]
    gpu_memory_bytes: tuple[int, ...]
    processor: str


def local_hardware() -> Hardware:
    import torch

    from paceline.step.placement import processor_name

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    properties = [torch.cuda.get_device_properties(i) for i in range(count)]
    return Hardware(tuple(p.name for p in properties), tuple(p.total_memory for p in properties), processor_name())


def planned_division(plan: Plan) -> dict[str, Any]:
    """The settings that divide the network as the plan does, if it does."""
    pick = plan.pick.candidate
    if pick.tensor > 1 or pick.shard != "none":
        return {"tensor": pick.tensor, "shard": pick.shard}
    if plan.pipeline is None:
        return {}
    cut = ",".join(stage.layers[0] for stage in plan.pipeline.stages[1:])
    return {"pipeline": len(plan.pipeline.stages), "microbatches": plan.pipeline.microbatches, "cut": cut}


def planned_settings(
    plan: Plan, here: Hardware, *, device: str | None, workers: int | None
) -> tuple[dict[str, Any], Strategy | None, int]:
    """The workload's settings, the strategy and the number of workers. A given device or number takes precedence."""
    pick = plan.pick.candidate
    _check(plan, here, device, workers)
    count = workers if workers is not None else pick.copies
    on_gpu = bool(_same_gpus(pick.device, here)) if device is None else device != "cpu"
    settings: dict[str, Any] = {f.name: getattr(plan.workload, f.name) for f in dataclasses.fields(plan.workload)}
    settings |= {
        "batch": pick.batch,
        "epochs": max(1, math.ceil(plan.pick.epochs)),
        "device": device or ("cuda" if on_gpu else "cpu"),
        "precision": pick.precision if on_gpu or pick.precision != "tf32" else "float32",
    }
    return settings, _fitted(pick.strategy, count) if count > 1 else None, count


def _fitted(strategy: Strategy, workers: int) -> Strategy:
    """The strategy for another number of workers: groups that divide it, and fewer backup workers than workers."""
    groups = strategy.groups
    if groups is not None:
        groups = next(number for number in range(min(groups, workers), 0, -1) if workers % number == 0)
    softsync_n = None if strategy.softsync_n is None else min(strategy.softsync_n, workers)
    backup_workers = min(strategy.backup_workers, workers - 1)
    return dataclasses.replace(strategy, groups=groups, backup_workers=backup_workers, softsync_n=softsync_n)


def _check(plan: Plan, here: Hardware, device: str | None, workers: int | None) -> None:
    """Rejects a plan for other hardware, naming the options that would run it here anyway."""
    pick, missing, anyway = plan.pick.candidate, [], []
    matching = _same_gpus(pick.device, here)
    has = f"{len(here.gpus)} {here.gpus[0]}" if here.gpus else "no GPU"
    is_here = matching > 0 or _same_processor(pick.device, here)
    if device is None and not is_here:
        missing.append(f"this machine has {has} (processor: {here.processor})")
        anyway.append(f"`device={'cuda' if here.gpus else 'cpu'!r}`")
    if workers is None and pick.machines > 1:
        missing.append("a plan is carried out on one machine")
        anyway.append(f"`workers={max(2, len(here.gpus))}`")
    elif workers is None and device is None and is_here and 0 < matching < pick.workers:
        missing.append(f"this machine has only {matching}")
        anyway.append(f"`workers={matching}`")
    if missing:
        number = f"{pick.workers} workers" if pick.workers > 1 else "one worker"
        where = f"{plan.pick.machines} × {pick.machine}" if plan.pick.machines > 1 else pick.machine
        raise InputError(
            f"the plan is for {number} on {pick.device} ({where}), but {' and '.join(missing)}: "
            f"run it on the planned hardware, or here with {' '.join(anyway)}"
        )


def _same_gpus(name: str, here: Hardware) -> int:
    """The number of local GPUs with the first word of this name and about the memory in the catalogue."""
    try:
        memory = find_device(name).memory_bytes
    except InputError:
        memory = None
    word = plain(name.split()[0])
    sizes = zip(here.gpus, here.gpu_memory_bytes, strict=True)
    return sum(word in plain(gpu) and (not memory or abs(size / memory - 1) <= ALIASES) for gpu, size in sizes)


def _same_processor(name: str, here: Hardware) -> bool:
    words = plain(here.processor)
    return all(plain(word) in words for word in name.split())
