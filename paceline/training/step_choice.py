"""Chooses the step of a run: the fastest correct one for the workload at hand, with the reason in one line.

The choice follows from the workload, the device and estimates, never from a stopwatch: a run that is repeated or
resumed must take the same step to end with the same parameters. `step/` makes what was decided here.
"""

from __future__ import annotations

import torch

from paceline.errors import WorkloadError, reason
from paceline.step.flat import FlatStep
from paceline.step.make import StepChoice, make_step, not_flat, obstacle, step_of_kind
from paceline.step.step import Parts, Step
from paceline.step.trial import unused_parameters
from paceline.training.compile_choice import compiling_pays
from paceline.workload import TUNE

# Capturing takes a fraction of a second.
CAPTURE_FROM_UPDATES = 20


def choose_step(parts: Parts, asked: str) -> tuple[Step, StepChoice]:
    """The step that was asked for, or an error if it cannot be had; with `auto` the one that suits."""
    if asked == TUNE:
        raise WorkloadError("step 'tune' is for training: it is tried out in a run; use `step='auto'` here")
    if asked != "auto":
        return make_step(parts, asked)
    found = unused_parameters(parts) or not_flat(parts)
    if found:
        return step_of_kind(parts, "plain"), StepChoice("plain", found)
    updates = parts.updates_per_epoch * parts.workload.epochs
    pays = compiling_pays(parts, updates)
    if pays is None:
        return _uncompiled(parts, updates)
    step, refused = _if_possible(parts, "compiled")
    if step is not None:
        return step, StepChoice(step.kind, pays)
    step, choice = _uncompiled(parts, updates)
    return step, StepChoice(choice.kind, f"{choice.reason}; {refused}")


def _uncompiled(parts: Parts, updates: int) -> tuple[Step, StepChoice]:
    if parts.device.type != "cuda":
        flat = FlatStep(parts)
        chain = "a chain of layers, its gradient written out, " * all(p.chain is not None for p in flat.phases)
        return flat, StepChoice(flat.kind, f"{chain}all parameters updated at once")
    uncaptured = obstacle(parts, "graph")
    if uncaptured:
        why = f"all parameters updated at once; not captured as a graph, since {uncaptured}"
    elif updates < CAPTURE_FROM_UPDATES:
        why = f"{updates} updates are too few for capturing a graph to pay"
    else:
        step, refused = _if_possible(parts, "graph")
        if step is not None:
            return step, StepChoice(step.kind, "captured as a CUDA graph, so that launching costs nothing")
        why = str(refused)
    return FlatStep(parts), StepChoice(FlatStep.kind, why)


def _if_possible(parts: Parts, kind: str) -> tuple[Step | None, str]:
    """The step, or why it is not possible."""
    found = obstacle(parts, kind)
    if found:
        return None, found
    try:
        return step_of_kind(parts, kind), ""
    except Exception as error:
        if parts.device.type == "cuda":
            torch.cuda.synchronize(parts.device)
        made = {"compiled": "compiled", "graph": "captured"}[kind]
        return None, f"the step cannot be {made}: {reason(error)}"
