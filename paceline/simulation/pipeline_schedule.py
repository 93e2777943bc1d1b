"""A step of a pipeline in virtual time: which stage works on which micro-batch when, and how long it waits.

Stages that take equally long, k of them with m micro-batches and no time for hand-overs, idle for
(k - 1) / (m + k - 1) of a step (Huang et al. 2019, GPipe; 1F1B: Narayanan et al. 2019, PipeDream).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from paceline.cost.piece_times import PieceTime
from paceline.trace import Span, Trace

Pass = tuple[str, int]
"""forward or backward, and the number of the micro-batch."""


@dataclass(frozen=True)
class ScheduleOutcome:
    seconds: float
    """From the first forward pass to the end of the last backward pass."""
    idle_shares: tuple[float, ...]
    """Of each stage."""
    in_flight: tuple[int, ...]
    """The most micro-batches whose activations a stage keeps at the same time."""
    trace: Trace

    @property
    def idle_share(self) -> float:
        return sum(self.idle_shares) / len(self.idle_shares)


def passes_of(schedule: str, stage: int, stages: int, microbatches: int) -> list[Pass]:
    """The passes of a stage in their order; `schedule` is gpipe or 1f1b."""
    ahead = microbatches if schedule == "gpipe" else min(microbatches, stages - stage)
    order: list[Pass] = [("forward", number) for number in range(ahead)]
    for number in range(microbatches):
        order.append(("backward", number))
        if ahead + number < microbatches:
            order.append(("forward", ahead + number))
    return order


def simulate_schedule(
    stages: Sequence[PieceTime], microbatches: int, schedule: str, handovers_s: Sequence[float] = (), *,
    steps: int = 1, around_s: Sequence[float] = (), receives_when_free: bool = False,
) -> ScheduleOutcome:  # fmt: skip
    """`stages` have the times of one micro-batch, `handovers_s` those of passing it on from each stage to the next.

    `around_s` is what each stage does besides passes, in front of the first one of each of `steps`; it counts as idle.
    `receives_when_free`: a hand-over begins when the receiver has ended its pass, and not while it computes.
    """
    count = len(stages)
    handovers_s = handovers_s or [0.0] * (count - 1)
    orders = [passes_of(schedule, stage, count, microbatches) for stage in range(count)]
    in_flight = tuple(_most_in_flight(order) for order in orders)
    waiting = [
        [(direction, step * microbatches + number) for step in range(steps) for direction, number in order]
        for order in orders
    ]
    free_s, busy_s = [0.0] * count, [0.0] * count
    ended_s: dict[tuple[int, Pass], float] = {}
    spans: list[Span] = []
    while any(waiting):
        for stage, order in enumerate(waiting):
            while order and ((needed := _needed(stage, order[0], count)) is None or needed in ended_s):
                direction, number = done = order.pop(0)
                took_s = stages[stage].forward_s if direction == "forward" else stages[stage].backward_s
                if around_s and direction == "forward" and number % microbatches == 0:
                    free_s[stage] += around_s[stage]
                start_s = free_s[stage]
                if needed is not None:
                    handover_s = handovers_s[min(stage, needed[0])] if needed[0] != stage else 0.0
                    before_s = ended_s[needed]
                    if receives_when_free:
                        start_s = max(start_s, before_s) + handover_s
                    else:
                        start_s = max(start_s, before_s + handover_s)
                free_s[stage] = ended_s[stage, done] = start_s + took_s
                busy_s[stage] += took_s
                spans.append(Span(f"stage {stage + 1}", direction, start_s, free_s[stage], f"micro-batch {number + 1}"))
    whole_s = max(free_s)
    idle = tuple((whole_s - busy) / whole_s if whole_s else 0.0 for busy in busy_s)
    return ScheduleOutcome(whole_s, idle, in_flight, Trace(tuple(sorted(spans, key=lambda s: (s.start_s, s.who)))))


def _needed(stage: int, one: Pass, count: int) -> tuple[int, Pass] | None:
    """The stage and the pass whose result a pass starts with; None: it starts with the data."""
    direction, number = one
    if direction == "forward":
        return (stage - 1, one) if stage else None
    return (stage + 1, one) if stage < count - 1 else (stage, ("forward", number))


def _most_in_flight(order: Sequence[Pass]) -> int:
    now = most = 0
    for direction, _ in order:
        now += 1 if direction == "forward" else -1
        most = max(most, now)
    return most
