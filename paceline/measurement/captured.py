"""Whose the kernels of a captured step are: the same step, not captured, launches them in the same order."""

from __future__ import annotations

from paceline.measurement.kernel_order import KernelOrder
from paceline.measurement.kernels import owners_by_launch
from paceline.measurement.module_marks import ModuleMarks
from paceline.measurement.step_marks import marks_of
from paceline.measurement.tape import Tape
from paceline.measurement.tracing import Tracing
from paceline.step.feeder import first_batch
from paceline.step.graph import GraphStep
from paceline.step.snapshot import Snapshot

ITERATIONS = 3


def order_of_captured(step: GraphStep) -> KernelOrder | None:
    """The order of kernels in an iteration; nothing of the training is changed. None when it is not steady."""
    batch = first_batch(step.parts.feeder)
    before = Snapshot(step.parts.network, step, step.parts.generator)
    tracing, tapes = Tracing(step.parts.device), []
    step.take(batch)
    tracing.start()
    for _ in range(ITERATIONS):
        tape = Tape()
        marks = ModuleMarks(step.parts.network, lambda tape=tape: tape)  # type: ignore[misc]
        with marks.installed(), marks_of(step, tape):
            tape.mark("edge", ("other", ""))
            step.take(batch)
            tape.mark("edge", ("other", ""))
        tapes.append(tape)
    kernels = tracing.stop()
    before.restore()
    return KernelOrder.learnt(kernels, owners_by_launch(kernels, tapes))
