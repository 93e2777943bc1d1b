"""Marks inside a step: where its gradient begins and ends, and where its update does."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from paceline.measurement.mark_log import LOOP, OUTSIDE, MarkLog, mark_around
from paceline.step.compiled_phase import CompiledPhase
from paceline.step.flat import FlatStep
from paceline.step.graph import GraphStep
from paceline.step.loss_scaling import scalers_of
from paceline.step.step import Step

WHOLE = "(compiled: forward, backward and update)"


def mark_step(step: Step, log: MarkLog) -> ExitStack:
    """Marks for one iteration of `step`; closing the stack removes them."""
    stack = ExitStack()
    stack.callback(mark_around(step, "take", log, ("update", ""), LOOP))
    phases = step.phases if isinstance(step, FlatStep) else []
    for phase in phases:
        if isinstance(phase, CompiledPhase) and phase.whole is not None:
            stack.callback(mark_around(phase, "whole", log, ("forward", WHOLE), LOOP))
        if phase.chain is not None:
            stack.callback(mark_around(phase.chain, "gradient", log, ("forward", OUTSIDE), ("update", "")))
            phase.chain.watch = _at_parts(log) if log.coarse else lambda part, name: log.mark("edge", (part, name))
            stack.callback(setattr, phase.chain, "watch", None)
    for default in step.parts.phases:
        stack.callback(mark_around(default, "gradient", log, ("forward", OUTSIDE), ("update", "")))
    for scaler in scalers_of(step.parts.phases):
        stack.callback(mark_around(scaler, "unscale", log, ("scale", ""), ("update", "")))
    return stack


def _at_parts(log: MarkLog) -> Callable[[str, str], None]:
    """Marks only where the forward pass becomes the backward pass."""

    def watch(part: str, name: str) -> None:
        if log.current[0] != part:
            log.mark("edge", (part, OUTSIDE))

    return watch


def mark_outside_graph(step: Step, log: MarkLog) -> ExitStack:
    """Marks what a captured step does outside its graphs."""
    stack = ExitStack()
    if isinstance(step, GraphStep):
        stack.callback(mark_around(step, "_fill", log, ("load", ""), LOOP))
    return stack
