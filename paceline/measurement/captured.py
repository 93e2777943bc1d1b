"""Attributes the kernels of a captured step: the same step, run eagerly, launches them in the same order."""

from __future__ import annotations

from paceline.measurement.kernel_order import KernelOrder
from paceline.measurement.kernel_tracer import KernelTracer
from paceline.measurement.kernels import Kernel, keys_by_launch
from paceline.measurement.mark_log import LOOP, MarkLog
from paceline.measurement.module_marks import ModuleMarks
from paceline.measurement.step_marks import mark_step
from paceline.step.feeder import first_batch
from paceline.step.graph import GraphStep
from paceline.step.snapshot import StepSnapshot
from paceline.step.step import Step

ITERATIONS = 3


def captured_kernel_order(step: GraphStep) -> KernelOrder | None:
    """The kernel order of one iteration, or None if it varies. The training state is restored afterwards."""
    before = StepSnapshot(step.parts.network, step, step.parts.generator)
    step.take(first_batch(step.parts.feeder))
    kernels, logs = marked_kernels(step)
    before.restore()
    return KernelOrder.learned(kernels, keys_by_launch(kernels, logs))


def marked_kernels(step: Step) -> tuple[list[Kernel], list[MarkLog]]:
    """The kernels of a few iterations of a step that run eagerly with marks, and the marks of each."""
    batch = first_batch(step.parts.feeder)
    tracer, logs = KernelTracer(step.parts.device), []
    tracer.start()
    for _ in range(ITERATIONS):
        log = MarkLog()
        marks = ModuleMarks(step.parts.network, lambda log=log: log)  # type: ignore[misc]
        marks.evaluates = False
        with marks.installed(), mark_step(step, log):
            log.mark("edge", LOOP)
            step.take(batch)
            log.mark("edge", LOOP)
        logs.append(log)
    return tracer.stop(), logs
