"""Measures a workload: runs the step that would train it and samples some of its iterations with the layer clock."""

from __future__ import annotations

import functools
import platform
from collections.abc import Callable
from dataclasses import replace
from math import ceil
from pathlib import Path
from time import perf_counter

import torch

from paceline import busy_machine
from paceline.errors import InputError, PacelineError
from paceline.measurement.gpu_session import GpuSession
from paceline.measurement.measured_step import MeasuredStep
from paceline.measurement.measurement import IterationTime, Measurement
from paceline.measurement.memory import peak_memory_bytes
from paceline.measurement.module_marks import check_supported
from paceline.measurement.rates import DeviceRates, device_rates
from paceline.measurement.session import Session
from paceline.measurement.summary import summarise
from paceline.step.build import assemble, load_data
from paceline.step.make import ChooseStep, StepChoice, make_step
from paceline.step.phase import stages_of
from paceline.step.placement import choose_device, cpu_settings_restored, device_name, dtype_of
from paceline.step.step import Parts
from paceline.step.tally import Score, Tally
from paceline.workload import Workload

PROGRESS_INTERVAL_S = 0.2
SHORT_CHUNK, LONG_CHUNK = 10, 50
"""Iterations between two looks at the progress: few where iterations are slow."""
LONG_CHUNK_S = 5.0
MAX_UNTIMED = 10
MOST_ITERATIONS = 10_000_000
"""Every one of them has a row in memory."""
ITERATIONS, LEAST_S, MOST_BY_DEFAULT = 200, 2.0, 20_000
"""A shorter time is that of a few moments, in which another program may run."""
PLAIN = functools.partial(make_step, kind="plain")


@cpu_settings_restored()
def measure(
    workload: Workload,
    *,
    choose: ChooseStep,
    iterations: int | None = None,
    cache: Path | None = None,
    watch: Callable[[int, int], None] | None = None,
) -> Measurement:
    """Where the time of an iteration of `workload` goes, by the step that `choose` makes.

    By default short iterations of a CPU are as many as take `LEAST_S`. `watch(done, total)` is called now and then.
    """
    check_supported()
    if iterations is not None and not 20 <= iterations <= MOST_ITERATIONS:
        raise InputError(f"iterations={iterations:,} should be from 20 to {MOST_ITERATIONS:,}")
    asked, iterations = iterations, iterations or ITERATIONS
    machine = busy_machine.MachineWatch()
    device, _ = choose_device(workload.device)
    parts = assemble(workload, load_data(workload, cache), device)
    taken, choice = choose(parts)
    measured = MeasuredStep(taken)
    if isinstance(measured.session, GpuSession):
        iterations = max(iterations, measured.session.min_iterations)
    measured.plan(iterations, trains=False)
    try:
        longer = asked is None and device.type == "cpu"
        _run(measured, functools.partial(_wanted, measured.session, iterations, longer), watch)
        busy = machine.said()
        measurement = measurement_of(measured, choice, {"busy": busy} if busy else None)
    finally:
        measured.close()
    if taken.kind == "compiled":
        plain = measure(workload, choose=PLAIN, iterations=max(40, iterations // 4), cache=cache)
        measurement = replace(measurement, eager_layers=plain.layers, eager_s=plain.iteration_s.mean_s)
    return measurement


def _wanted(session: Session, iterations: int, longer: bool) -> int:
    """How many iterations to run; `longer`: more, if so many take too little time."""
    if not longer or session.number < iterations // 2:
        return iterations
    return max(iterations, min(MOST_BY_DEFAULT, ceil(LEAST_S / session.untouched_s(default=LEAST_S))))


def _run(step: MeasuredStep, wanted: Callable[[], int], watch: Callable[[int, int], None] | None) -> None:
    tally = Tally(step.parts.workload.top)
    whole = max(1, step.parts.feeder.order.full_batches)
    stages = stages_of(step.parts.phases, step.parts.workload.epochs)
    epoch = stages[-1] - 1 if stages else 0  # the phases of the last epoch are measured, as they are predicted
    left, reported_at, taken, chunk = 0, perf_counter(), 0, SHORT_CHUNK
    while step.session.number < (iterations := wanted()):
        if not left:
            step.begin(epoch)
            epoch, left = epoch + 1, whole
        count = min(left, max(step.stride, iterations - step.session.number))
        if watch is not None:  # in chunks, so that progress is visible
            count = min(count, max(step.stride, chunk))
        began = perf_counter()
        step.advance(count, tally)
        chunk = LONG_CHUNK if (perf_counter() - began) / count * LONG_CHUNK < LONG_CHUNK_S else SHORT_CHUNK
        left, taken = left - count, taken + count
        if taken > MAX_UNTIMED * iterations:
            raise PacelineError(f"after {taken:,} iterations only {step.session.number:,} could be timed")
        if watch is not None and perf_counter() - reported_at > PROGRESS_INTERVAL_S:
            watch(step.session.number, iterations)
            reported_at = perf_counter()


def measurement_of(step: MeasuredStep, choice: StepChoice, conditions: dict[str, str] | None = None) -> Measurement:
    """The measurement of a step so far."""
    workload = step.parts.workload
    began_s = perf_counter()
    rates = device_rates(step.parts.device, dtype_of(workload))
    step.session.overhead.prelude_s += perf_counter() - began_s
    how = {**(conditions or {}), "precision": workload.precision, "step": f"{choice.kind}: {choice.reason}"}
    found = measured_session(step.session, step.parts, rates, choice.kind, how)
    scores = step.scores()
    return replace(found, kept=tuple(_with_score(k, scores) for k in found.kept))


def measured_session(
    session: Session, parts: Parts, rates: DeviceRates, step: str, conditions: dict[str, str], device: str = ""
) -> Measurement:
    """What a session found; `device` names it, if the name of the parts' device does not say enough."""
    workload = parts.workload
    return summarise(
        session,
        rates,
        name=workload.network,
        batch=workload.batch,
        device=device or str(parts.device),
        device_name=device_name(parts.device),
        step=step,
        peak_memory_bytes=peak_memory_bytes(parts.device),
        conditions={
            "data": workload.data,
            "optimizer": workload.optimizer,
            **conditions,
            "threads": str(torch.get_num_threads()),
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
    )


def _with_score(kept: IterationTime, scores: dict[int, Score]) -> IterationTime:
    score = scores.get(kept.number)
    if score is None:
        return kept
    return replace(kept, loss=score.loss, top_1=score.accuracy, top_n=score.top_accuracy)
