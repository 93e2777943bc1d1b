"""Marks inside a step: where its gradient begins and ends, and where its update does."""

from __future__ import annotations

from contextlib import ExitStack

from paceline.measurement.tape import OUTSIDE, Tape, around
from paceline.step.flat import FlatStep
from paceline.step.graph import GraphStep
from paceline.step.step import Step

WHOLE = "(compiled: forward, backward and update)"


def marks_of(step: Step, tape: Tape) -> ExitStack:
    """For one iteration."""
    stack = ExitStack()
    stack.callback(around(step, "take", tape, ("update", ""), ("other", "")))
    if step.kind == "compiled":
        stack.callback(around(step, "whole", tape, ("forward", WHOLE), ("other", "")))
    phases = step.phases if isinstance(step, FlatStep) else []
    for phase in phases:
        if phase.chain is not None:
            stack.callback(around(phase.chain, "gradient", tape, ("forward", OUTSIDE), ("update", "")))
            phase.chain.watch = lambda part, name: tape.mark("edge", (part, name))
            stack.callback(setattr, phase.chain, "watch", None)
    for default in step.parts.phases:
        stack.callback(around(default, "gradient", tape, ("forward", OUTSIDE), ("update", "")))
    return stack


def marks_beside(step: Step, tape: Tape) -> ExitStack:
    """What a captured step does outside of its graphs."""
    stack = ExitStack()
    if isinstance(step, GraphStep):
        stack.callback(around(step, "_fill", tape, ("load", ""), ("other", "")))
    return stack
