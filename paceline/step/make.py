"""Makes a step of a kind that was decided: by the user, by a checkpoint, or by a room above that knows what pays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from paceline.errors import PacelineError, WorkloadError, nearest, reason
from paceline.step.compiled import CapturedCompiledStep, CompiledStep, check_compiler
from paceline.step.flat import FlatStep
from paceline.step.flat_parameters import FlatParameters
from paceline.step.graph import GraphStep
from paceline.step.phase import share_a_parameter
from paceline.step.plain import PlainStep
from paceline.step.step import Parts, Step
from paceline.step.trial import unused_parameters
from paceline.workload import STEPS


@dataclass(frozen=True)
class StepChoice:
    kind: str
    reason: str


ChooseStep = Callable[[Parts], tuple[Step, StepChoice]]
"""Chooses a kind of step and makes it."""


def make_step(parts: Parts, kind: str) -> tuple[Step, StepChoice]:
    """The step that was asked for; if it cannot be had, that is an error."""
    kinds = [known for known in STEPS if known != "auto"]
    if kind not in kinds:
        raise WorkloadError(f"step {kind!r} is unknown: {nearest(kind, kinds)}")
    unused = unused_parameters(parts)
    found = None if kind == "plain" else unused or not_flat(parts) or obstacle(parts, kind)
    if found:
        raise WorkloadError(f"step {kind!r} is not possible here: {found}; use `step='auto'`")
    try:
        step = step_of_kind(parts, kind)
    except PacelineError:
        raise
    except Exception as error:
        raise WorkloadError(f"step {kind!r} is not possible here: {reason(error)}; use `step='auto'`") from error
    return step, StepChoice(step.kind, "asked for")


def step_of_kind(parts: Parts, kind: str) -> Step:
    """The step, or the error of the library that could not make it."""
    if kind == "compiled":  # captured where that is possible
        return CompiledStep(parts) if GraphStep.possible(parts) else CapturedCompiledStep(parts)
    kinds: dict[str, type[PlainStep | FlatStep]] = {"plain": PlainStep, "flat": FlatStep, "graph": GraphStep}
    return kinds[kind](parts)


def not_flat(parts: Parts) -> str | None:
    """Why these parameters need the plain step, or None."""
    for phase in parts.phases:
        if ":" in phase.rule.optimizer:
            return f"optimizer {phase.rule.optimizer} is the user's own"
        found = FlatParameters.possible(phase.parameters)
        if found:
            return found
    return "two phases share a parameter" if share_a_parameter(parts.phases) else None


def obstacle(parts: Parts, kind: str) -> str | None:
    """Why a compiled or captured step is not possible on this machine, or None."""
    if kind in ("compiled", "graph") and parts.workload.precision == "float16":
        return "with precision 'float16' the values of gradients decide whether an update is made"
    if kind == "compiled":
        return check_compiler()
    return GraphStep.possible(parts) if kind == "graph" else None
