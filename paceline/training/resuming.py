"""What a run is resumed from, and what may differ then; any other change would make it another run."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from paceline.directory_lock import DirectoryLock
from paceline.errors import CheckpointError
from paceline.output_directory import writable
from paceline.record import from_json
from paceline.step.layout import faster_format
from paceline.step.placement import choose_device
from paceline.strategy.strategy import Strategy
from paceline.training.checkpoint import NAME, Checkpoint
from paceline.workload import Workload, with_settings

CHANGEABLE = ("epochs", "device", "threads")

VIRTUAL = "virtual"
"""The step of a checkpoint from a simulated cluster: it has parameters, but cannot be resumed."""
DIVIDED = "parallel"
"""The step of a checkpoint from processes that divide a network."""
WITH_WORKERS = ("local", "ray")
"""The steps of checkpoints from real workers; each of these drivers resumes those of the others."""


def resumable_directory(path: Path) -> Path:
    if not path.is_dir():
        raise CheckpointError(f"{path}: no such directory")
    if not (path / NAME).exists():
        if not (path / "record.json").exists():
            raise CheckpointError(f"{path} is not the directory of a run: it has neither record.json nor {NAME}")
        raise CheckpointError(f"{path} has no {NAME}: the run stopped before its first one, start it again")
    return path


@contextmanager
def claimed_to_resume(directory: str | Path) -> Iterator[Path]:
    """The directory of a run with a checkpoint to resume from; nobody else can claim it meanwhile."""
    path = resumable_directory(Path(directory))
    with writable(f"{path}:"):
        lock = DirectoryLock(path, lambda who: f"{path}: the run is still running{who}; wait for it, or stop it")
    with lock:
        yield path


def resumed_workload(checkpoint: Checkpoint, changes: dict[str, Any], place: Path) -> Workload:
    """The checkpoint's workload with `changes`, or an error when it could not be the same run."""
    if checkpoint.step_kind == VIRTUAL:
        raise CheckpointError(
            f"{place} belongs to a virtual run, which cannot be resumed: start it again; its seed repeats it exactly"
        )
    saved = checkpoint.workload
    asked = with_settings(saved, changes)
    for field in dataclasses.fields(Workload):
        before, after = getattr(saved, field.name), getattr(asked, field.name)
        if before != after and field.name not in CHANGEABLE:
            other = "network" if field.name == "network" else "run"
            raise CheckpointError(f"{place} belongs to another {other}: its {field.name} is {before!r}, not {after!r}")
    begun = checkpoint.epoch + (checkpoint.next_step > 0)
    if asked.epochs < begun:
        raise CheckpointError(f"{place} has already reached epoch {begun}, and `epochs={asked.epochs}` is lower")
    return _with_same_layout(asked, checkpoint.made_on)


def _with_same_layout(workload: Workload, made_on: str) -> Workload:
    """On another kind of device `auto` may mean another memory format; flat optimizer states are in the order of the
    first."""
    before = torch.device(made_on).type if made_on else ""
    if workload.memory_format != "auto" or before in ("", choose_device(workload.device)[0].type):
        return workload
    return dataclasses.replace(workload, memory_format=faster_format(workload.precision, on_gpu=before == "cuda"))


def resumed_distribution(checkpoint: Checkpoint, place: Path) -> tuple[Strategy, int, int]:
    """The strategy of a checkpoint, its number of workers and of server threads."""
    if checkpoint.step_kind not in WITH_WORKERS:
        raise CheckpointError(f"{place} belongs to a run in one process: resume it without a strategy")
    saved = checkpoint.optimizer
    try:
        strategy: Strategy = from_json(Strategy, saved["strategy"], "strategy")
        return strategy, int(saved["workers"]), int(saved["server_threads"])
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{place} does not belong to a distributed run: {error}") from error


def resumed_step(checkpoint: Checkpoint, workload: Workload) -> str:
    """A graph cannot continue without its GPU, but the flat step can take over its state; that of a divided network is
    the plain step's."""
    if checkpoint.step_kind == DIVIDED:
        return "plain"
    if checkpoint.step_kind == "graph" and choose_device(workload.device)[0].type != "cuda":
        return "flat"
    return checkpoint.step_kind
