"""Steps with one micro-batch, before the first real one: they time what the idle share of a pipeline follows from.

With one micro-batch, one stage works at a time. What passes between the forward pass of a stage and its backward pass,
besides the passes of the stages after it, is the time of handing over there and back: messages, and PyTorch's own work
around them. What a process does in a step besides passes (loading, the update, dividing a batch) delays its next ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from time import perf_counter

from paceline.cost.piece_times import PieceTime
from paceline.simulation.pipeline_schedule import simulate_schedule
from paceline.training.drivers.model_parallel.stage_times import StageTimes

ROUNDS = 6
"""Steps; the first is not counted."""
SIMULATED_STEPS = 8
"""So many that the end of the last step hardly counts."""


@dataclass(frozen=True)
class Rehearsal:
    """Seconds of one stage: those of a pass are of one micro-batch."""

    forward_s: float
    """With the loss, in the last stage."""
    backward_s: float
    away_s: float
    """From the end of its forward pass to the beginning of its backward pass."""
    around_s: float
    """Of its own work in a step before the first pass and after the last one."""
    outside_s: float
    """Part of `around_s` that does not count as idle: loading, averaging gradients and the update."""

    @property
    def pass_s(self) -> float:
        return self.forward_s + self.backward_s


def rehearse(step: Callable[[], None], times: StageTimes, *, is_first: bool) -> Rehearsal:
    """`step` trains the stage on one micro-batch; afterwards `times` are as new."""
    rounds = []
    for _ in range(ROUNDS):
        waited_s, began_s = times.passing_s, perf_counter()
        step()
        rounds.append(_one_round(times, is_first, began_s, perf_counter(), waited_s))
    times.forget()
    return Rehearsal(*(median(values) for values in zip(*rounds[1:], strict=True)))


def _one_round(times: StageTimes, is_first: bool, began_s: float, ended_s: float, waited_s: float) -> tuple[float, ...]:
    spans: dict[str, list[tuple[float, float]]] = {"load": [], "forward": [], "backward": []}
    for part, *span in times.take_spans():
        spans.setdefault(part, []).append((span[0], span[1]))
    (_, loaded_s), *_ = spans["load"]
    forward = spans["forward"]
    ((back_s, done_s),) = spans["backward"]
    # Whatever another stage does between loading and its first pass happens while it waits for the first stage.
    ready_s = forward[0][0] if is_first else loaded_s
    return (
        sum(end_s - start_s for start_s, end_s in forward),
        done_s - back_s,
        back_s - forward[-1][1],
        ready_s - began_s + ended_s - done_s,
        ended_s - began_s - (times.passing_s - waited_s),
    )


def handovers_s(stages: Sequence[Rehearsal]) -> list[float]:
    """Of a micro-batch from each stage to the next, on average of both directions."""
    return [max(0.0, stage.away_s - after.away_s - after.pass_s) / 2 for stage, after in pairwise(stages)]


def expected_idle_share(stages: Sequence[Rehearsal], microbatches: int, schedule: str) -> float:
    """On average over stages, as `ProcessRecord.idle_share` counts it."""
    passes = [PieceTime(stage.forward_s, stage.backward_s) for stage in stages]
    whole_s = simulate_schedule(
        passes, microbatches, schedule, handovers_s(stages), steps=SIMULATED_STEPS,
        around_s=[stage.around_s for stage in stages],
    ).seconds  # fmt: skip
    busy_s = [SIMULATED_STEPS * microbatches * stage.pass_s for stage in stages]
    counted_s = [whole_s - SIMULATED_STEPS * stage.outside_s for stage in stages]
    return sum(1 - busy / counted for busy, counted in zip(busy_s, counted_s, strict=True)) / len(stages)
