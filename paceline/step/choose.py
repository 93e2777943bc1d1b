"""Chooses the step: the fastest correct one for the workload at hand, with the reason in one line.

The choice follows from the workload alone, never from a stopwatch: a run that is repeated or resumed must
take the same step to end with the same parameters.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from paceline.errors import PacelineError, WorkloadError, nearest, reason
from paceline.step.compile_choice import compiling_pays
from paceline.step.compiled import CapturedCompiledStep, CompiledStep, check_compiler
from paceline.step.flat import FlatStep
from paceline.step.flat_parameters import FlatParameters
from paceline.step.graph import GraphStep
from paceline.step.phase import share_a_parameter
from paceline.step.plain import PlainStep
from paceline.step.step import Parts, Step
from paceline.step.trial import unused_parameters
from paceline.workload import STEPS, TUNE

# Capturing takes a fraction of a second.
CAPTURE_FROM_UPDATES = 20


@dataclass(frozen=True)
class StepChoice:
    kind: str
    reason: str


def make_step(parts: Parts, asked: str) -> tuple[Step, StepChoice]:
    """The step asked for, or the one that suits; a step that was asked for and cannot be had is an error."""
    if asked == TUNE:
        raise WorkloadError("step 'tune' is for training: it is tried out in a run; use `step='auto'` here")
    if asked not in STEPS:
        raise WorkloadError(f"step {asked!r} is unknown: {nearest(asked, STEPS)}")
    if asked == "auto":
        step, reason = _suitable(parts)
    else:
        step, reason = _asked_for(parts, asked), "asked for"
    return step, StepChoice(step.kind, reason)


def _suitable(parts: Parts) -> tuple[Step, str]:
    obstacle = unused_parameters(parts) or _not_flat(parts)
    if obstacle:
        return PlainStep(parts), obstacle
    updates = parts.updates_per_epoch * parts.workload.epochs
    pays = compiling_pays(parts, updates)
    if pays:
        uncompiled = check_compiler()
        if uncompiled is None:
            try:
                return _compiled(parts), pays
            except Exception as error:
                if parts.device.type == "cuda":
                    torch.cuda.synchronize(parts.device)
                uncompiled = f"the step cannot be compiled: {reason(error)}"
        step, why = _uncompiled(parts, updates)
        return step, f"{why}; {uncompiled}"
    return _uncompiled(parts, updates)


def _uncompiled(parts: Parts, updates: int) -> tuple[Step, str]:
    if parts.device.type == "cuda":
        uncaptured = GraphStep.possible(parts)
        if uncaptured:
            return FlatStep(parts), f"all parameters updated at once; not captured as a graph, since {uncaptured}"
        if updates < CAPTURE_FROM_UPDATES:
            return FlatStep(parts), f"{updates} updates are too few for capturing a graph to pay"
        return _captured_if_possible(parts)
    step = FlatStep(parts)
    if all(phase.chain is not None for phase in step.phases):
        return step, "a chain of layers, its gradient written out, all parameters updated at once"
    return step, "all parameters updated at once"


def _asked_for(parts: Parts, kind: str) -> Step:
    unused = unused_parameters(parts)
    obstacle = None if kind == "plain" else unused or _not_flat(parts)
    if kind == "compiled":
        obstacle = obstacle or check_compiler()
    elif kind == "graph":
        obstacle = obstacle or GraphStep.possible(parts)
    if obstacle:
        raise WorkloadError(f"step {kind!r} is not possible here: {obstacle}; use `step='auto'`")
    try:
        if kind == "plain":
            return PlainStep(parts)
        if kind == "flat":
            return FlatStep(parts)
        return _compiled(parts) if kind == "compiled" else GraphStep(parts)
    except PacelineError:
        raise
    except Exception as error:
        raise WorkloadError(f"step {kind!r} is not possible here: {reason(error)}; use `step='auto'`") from error


def _captured_if_possible(parts: Parts) -> tuple[Step, str]:
    try:
        return GraphStep(parts), "captured as a CUDA graph, so that launching costs nothing"
    except Exception as error:
        torch.cuda.synchronize(parts.device)
        return FlatStep(parts), f"the step cannot be captured: {reason(error)}"


def _compiled(parts: Parts) -> Step:
    """Captured where that is possible."""
    return CompiledStep(parts) if GraphStep.possible(parts) else CapturedCompiledStep(parts)


def _not_flat(parts: Parts) -> str | None:
    for phase in parts.phases:
        if ":" in phase.rule.optimizer:
            return f"optimizer {phase.rule.optimizer} is the user's own"
        obstacle = FlatParameters.possible(phase.parameters)
        if obstacle:
            return obstacle
    return "two phases share a parameter" if share_a_parameter(parts.phases) else None
