"""Short steps before the first real one: they time what the idle share of a pipeline follows from.

A step with a few micro-batches goes through all stages, with the schedule of the training. Each process times its own
passes, and what it does besides: loading, dividing a batch, the update. What is left of the step is the time of handing
micro-batches over: messages, and the work of PyTorch and of the system around them. It is found with the schedule in
virtual time, and so is the idle share of a step with all its micro-batches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import mean
from time import perf_counter

from paceline.cost.piece_times import PieceTime
from paceline.simulation.pipeline_schedule import simulate_schedule
from paceline.training.drivers.model_parallel.stage_times import StageTimes

MICROBATCHES_PER_STAGE = 2
"""Of a short step: half of those that a step has by default."""
REHEARSED_S = 0.3
FEWEST_STEPS, MOST_STEPS = 2, 40
HALVINGS = 25


@dataclass(frozen=True)
class Rehearsal:
    """Mean seconds of one stage: those of passes are of one micro-batch."""

    microbatches: int
    """Of each short step."""
    forward_s: float
    """With the loss, in the last stage."""
    backward_s: float
    around_s: float
    """Of its own work in a step before the first pass and after the last one."""
    outside_s: float
    """Part of `around_s` that does not count as idle: loading, averaging gradients and the update."""
    step_s: float
    """From the beginning of a short step to the beginning of the next."""

    @property
    def pass_s(self) -> float:
        return self.forward_s + self.backward_s


def short_steps_of(first_s: float) -> int:
    """How many short steps are timed, where the first one took so long."""
    return max(FEWEST_STEPS, min(MOST_STEPS, math.ceil(REHEARSED_S / first_s)))


def rehearse(
    step: Callable[[], object], times: StageTimes, microbatches: int, steps: int, *, is_first: bool
) -> Rehearsal:
    """Times `steps` calls of `step`, each of which trains the stage on `microbatches` micro-batches."""
    began_s = perf_counter()
    each = [_one_step(step, times) for _ in range(steps)]
    step_s = (perf_counter() - began_s) / steps
    forward_s, backward_s, passing_s, ends_s = (mean(values) for values in zip(*each, strict=True))
    outside_s = step_s - passing_s
    # Another stage has nothing to do at its ends that it does not do while it waits for the first one.
    around_s = outside_s + is_first * ends_s
    return Rehearsal(microbatches, forward_s / microbatches, backward_s / microbatches, around_s, outside_s, step_s)


def _one_step(step: Callable[[], object], times: StageTimes) -> tuple[float, float, float, float]:
    """Seconds of forward and of backward passes, of both with waiting, and of that before and after them."""
    times.forget()
    step()
    spans = times.take_spans()
    began_s = next(start_s for part, start_s, _ in spans if part == "forward")
    ended_s = max(end_s for part, _, end_s in spans if part == "backward")
    seconds = times.seconds
    return seconds["forward"], seconds["backward"], times.passing_s, times.passing_s - (ended_s - began_s)


def handover_s(stages: Sequence[Rehearsal], schedule: str) -> float:
    """Of a micro-batch from a stage to the next: with it a short step takes as long as it did."""
    measured_s = mean(stage.step_s for stage in stages)
    low_s, high_s = 0.0, measured_s
    for _ in range(HALVINGS):
        middle_s = (low_s + high_s) / 2
        if _step_s(stages, stages[0].microbatches, schedule, middle_s) < measured_s:
            low_s = middle_s
        else:
            high_s = middle_s
    return low_s


def expected_idle_share(stages: Sequence[Rehearsal], microbatches: int, schedule: str) -> float:
    """On average over stages, as `ProcessRecord.idle_share` counts it."""
    whole_s = _step_s(stages, microbatches, schedule, handover_s(stages, schedule))
    return mean(1 - microbatches * stage.pass_s / (whole_s - stage.outside_s) for stage in stages)


def _step_s(stages: Sequence[Rehearsal], microbatches: int, schedule: str, handover_s: float) -> float:
    """From the beginning of a step to the beginning of the next, in the middle of a training."""
    passes = [PieceTime(stage.forward_s, stage.backward_s) for stage in stages]
    two_s, three_s = (
        simulate_schedule(
            passes, microbatches, schedule, [handover_s] * (len(stages) - 1), steps=steps,
            around_s=[stage.around_s for stage in stages], receives_when_free=True,
        ).seconds
        for steps in (2, 3)
    )  # fmt: skip
    return three_s - two_s
