"""`step='tune'`: every kind of step that is possible is tried on this machine for a moment, and the fastest is taken.

The result is kept in the cache folder for the same network, settings, device and versions, so that the next run takes
the same step without a trial. A resumed run takes the kind that its checkpoint names.
"""

from __future__ import annotations

import gc
import hashlib
import json
import platform
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from paceline import record
from paceline.data.cache import cache_folder
from paceline.errors import PacelineError, RecordError, WorkloadError, reason
from paceline.formatting import duration
from paceline.step.loss_scaling import scalers_of
from paceline.step.make import StepChoice, make_step
from paceline.step.placement import device_name
from paceline.step.snapshot import NetworkSnapshot
from paceline.step.step import Parts, Step
from paceline.training.conditions import own_version

KINDS = ("flat", "graph", "compiled", "plain")
TRIAL_S = 2.0
"""About how long a kind of step is timed; making it, and compiling it, comes on top."""
WITHOUT_EFFECT = ("seed", "epochs", "lr", "schedule", "device", "threads", "init", "metric", "top")
"""Settings of a workload that do not change which step is the fastest, or that the device stands for."""


@dataclass(frozen=True)
class StepTrial:
    """What a trial found: seconds per iteration by kind of step, and why other kinds were not possible."""

    step: str
    iteration_s: dict[str, float]
    refused: dict[str, str]

    def __str__(self) -> str:
        by_time = sorted(self.iteration_s.items(), key=lambda each: each[1])
        return ", ".join(f"{kind} {duration(seconds)}" for kind, seconds in by_time)


def tuned_step(parts: Parts) -> tuple[Step, StepChoice]:
    """The fastest step by an earlier trial, or by one that is made now. The network is left as it was."""
    path = trial_path(parts)
    known = _load(path)
    if known is not None:
        before = NetworkSnapshot(parts.network, parts.generator)
        try:
            step, _ = make_step(parts, known.step)
        except WorkloadError:
            before.restore()  # what was possible then is not now
        else:
            return step, StepChoice(step.kind, f"the fastest in an earlier trial on this machine: {known}")
    found = _try_kinds(parts)
    with suppress(OSError, PacelineError):  # a cache that cannot be written costs another trial, nothing else
        path.parent.mkdir(parents=True, exist_ok=True)
        record.save(found, path)
    step, _ = make_step(parts, found.step)
    return step, StepChoice(step.kind, f"the fastest in a trial on this machine: {found}")


def trial_path(parts: Parts) -> Path:
    """The file for the trial of a network with its settings on its device, with these versions."""
    settings = record.to_json(parts.workload)
    facts = {
        "workload": {key: value for key, value in settings.items() if key not in WITHOUT_EFFECT},
        "network": str(parts.network),
        "parameters": [[list(p.shape), list(p.stride()), str(p.dtype)] for p in parts.network.parameters()],
        "data": [parts.dataset.kind, list(parts.dataset.shape), type(parts.feeder).__name__],
        "device": [device_name(parts.device), torch.get_num_threads() if parts.device.type == "cpu" else 0],
        "versions": [own_version(), torch.__version__, str(torch.version.cuda), platform.python_version()],
    }
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:20]
    name = re.sub(r"[^a-z0-9]+", "-", parts.workload.network.lower()).strip("-")[:40]
    return cache_folder() / "steps" / f"{name}-{digest}.json"


def _load(path: Path) -> StepTrial | None:
    """The trial in a file; one that cannot be read, or is none, is made again."""
    try:
        found = record.load_as(path, StepTrial)
    except RecordError:
        return None
    return found if found.step in KINDS and found.step in found.iteration_s else None


def _try_kinds(parts: Parts) -> StepTrial:
    before = NetworkSnapshot(parts.network, parts.generator)
    times: dict[str, float] = {}
    refused: dict[str, str] = {}
    for kind in KINDS:
        try:
            times[kind] = _iteration_s(parts, kind)
        except Exception as error:
            if kind == "plain":  # what the plain step cannot train, nothing can
                raise
            refused[kind] = reason(error)
        finally:
            before.restore()
            for scaler in scalers_of(parts.phases):
                scaler.reset()
            _free_memory(parts.device)
    return StepTrial(min(times, key=lambda kind: times[kind]), times, refused)


def _iteration_s(parts: Parts, kind: str) -> float:
    """The shortest of some rounds: another program can only make one longer."""
    from paceline.measurement.network_timing import iteration_times  # not needed where an earlier trial is known

    step, _ = make_step(parts, kind)
    try:
        return min(iteration_times(step, TRIAL_S))
    finally:
        step.stop()


def _free_memory(device: torch.device) -> None:
    """Lets go of the step before, so that the next has the memory of the device for itself."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.empty_cache()
