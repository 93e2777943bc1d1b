"""The overhead of the layer clock: blocks of iterations with it, each between two halves of a block without it.

A block with the clock has exactly one sample, or as many as a long run would have in it. Where a long run samples more
rarely than a block, the overhead is divided by the ratio of the two rates.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass
from math import ceil

import torch

from benchmarks.step_loop import StepLoop
from paceline.measurement.gpu_session import GpuSession
from paceline.measurement.measured_step import MIN_SAMPLES, MeasuredStep
from paceline.measurement.measurement import Measurement
from paceline.measurement.measuring import measurement_of
from paceline.measurement.sampling_window import window_lengths
from paceline.step.build import assemble, load_data
from paceline.step.make import StepChoice
from paceline.training.step_choice import choose_step
from paceline.workload import Workload

SHORT_BLOCK_S = 0.5  # iterations are repeated until a block is this long
LONG_PAIR_S = 4.0  # a pair that would be longer has its samples closer together
DENSE, DENSE_BLOCK = 4, 8
DENSE_BLOCKS = 5
GPU_ITERATIONS = 2_500
UNTRACED_ITERATIONS = 50


@dataclass(frozen=True)
class Clocked:
    measurement: Measurement
    overheads: list[float]
    """Time with the clock divided by time without, minus one, for each pair."""
    block: int
    """Iterations with the clock in a pair, and as many without."""
    sampled_share: float
    """Share of a long run's iterations that are instrumented."""
    denser: float
    """How much more often than a long run the pairs are sampled; the overheads are divided by it."""
    untraced_s: float | None = None
    """On a GPU, the time of an iteration before the first trace of the process: if CUPTI stayed attached it would slow
    down all launches, with the clock and without it, and pairs would not show it."""


def with_clock(workload: Workload, device: torch.device, pairs: int, quick: bool) -> Clocked:
    parts = assemble(workload, load_data(workload), device)
    step, choice = choose_step(parts, "flat" if device.type == "cuda" else "auto")
    measured = MeasuredStep(step)
    try:
        if isinstance(measured.session, GpuSession):
            return _on_gpu(measured, pairs, GPU_ITERATIONS // 4 if quick else GPU_ITERATIONS, choice)
        return _on_cpu(measured, pairs, choice)
    finally:
        measured.close()


def _on_cpu(measured: MeasuredStep, pairs: int, choice: StepChoice) -> Clocked:
    workload, session = measured.parts.workload, measured.session
    measured.plan(workload.epochs * measured.parts.updates_per_epoch)
    watched, bare = StepLoop(measured), StepLoop(measured.step)
    iteration_s = bare.timed(3)
    if 2 * session.every * iteration_s > LONG_PAIR_S:
        long_run, session.every = session.every, DENSE
        watched.run(session.warm_up)
    else:  # a long run reduces sampling when it has enough
        watched.run(session.warm_up + (MIN_SAMPLES + 1) * session.every)
        long_run = session.every
    every = session.every
    block = max(DENSE_BLOCK, every * ceil(SHORT_BLOCK_S / (every * iteration_s)))

    def clocked_s() -> float:
        session.every = every
        return watched.timed(block)

    overheads = _pairs(clocked_s, lambda: bare.timed(block // 2), pairs)
    measurement = measurement_of(measured, choice)
    denser = long_run / every
    share = sum(window_lengths(long_run)) / long_run
    return Clocked(measurement, [o / denser for o in overheads], block, share, denser)


def _on_gpu(measured: MeasuredStep, pairs: int, iterations: int, choice: StepChoice) -> Clocked:
    """First a measurement as it is, then pairs with one sampled block each, whatever it is that follows it."""
    session = measured.session
    assert isinstance(session, GpuSession)
    measured.plan(iterations)
    watched, bare = StepLoop(measured), StepLoop(measured.step)
    bare.run(10)
    untraced_s = bare.timed(UNTRACED_ITERATIONS)
    while session.number < iterations:
        watched.run(50)
    measurement = measurement_of(measured, choice)
    long_run, block = session.lengths.cycle(session.every), session.lengths.cycle(DENSE_BLOCKS)

    def clocked_s() -> float:
        session.sample_every(DENSE_BLOCKS)
        return watched.timed(block)

    overheads = _pairs(clocked_s, lambda: bare.timed(block // 2), pairs)
    denser = long_run / block
    share = session.lengths.length("traced") / long_run
    return Clocked(measurement, [o / denser for o in overheads], block, share, denser, untraced_s)


def _pairs(clocked_s: Callable[[], float], half_s: Callable[[], float], pairs: int) -> list[float]:
    """The halves on both sides cancel the drift of the machine."""
    overheads = []
    for _ in range(pairs):
        gc.collect()
        before, with_it, after = half_s(), clocked_s(), half_s()
        overheads.append(with_it / (0.5 * (before + after)) - 1.0)
    return overheads
