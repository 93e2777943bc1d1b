"""The first steps on a cluster as a trace, a row for each worker: what `StepModel.time` gives as a mean, to be seen."""

from __future__ import annotations

from collections.abc import Iterator

from paceline.simulation.durations import Duration, DurationDistribution
from paceline.simulation.group_rounds import RoundTimes
from paceline.simulation.simulation import simulate_time
from paceline.simulation.steady import SLOTS
from paceline.simulation.worker_step import StepModel, acts_alone, exchanges_by_server
from paceline.strategy.strategy import Strategy
from paceline.trace import Span, Trace

MOST_STEPS = 50
ABOUT = 10_000
"""Spans; many workers are shown with fewer steps each."""
MOST_WORKERS = 256
"""The first of them; of a larger cluster the others are simulated, but have no rows."""
SERVER = "server"


def trace_of(step_model: StepModel) -> Trace:
    strategy, workers = step_model.strategy, step_model.placement.workers
    every = max(strategy.push_every, strategy.fetch_every)
    steps = max(2 * every, min(MOST_STEPS, ABOUT // (4 * workers)))
    if not exchanges_by_server(strategy, step_model.placement):
        return _of_one_group(step_model, steps // strategy.push_every)
    if not acts_alone(strategy, step_model.placement):
        return _of_groups(step_model, steps // strategy.push_every)
    played = _played(step_model, strategy, workers, steps, step_model.spread())
    rows = {SERVER, *(f"worker {number}" for number in range(MOST_WORKERS))}
    return Trace(tuple(span for span in played if span.who in rows))


def _played(
    model: StepModel, strategy: Strategy, workers: int, steps: int, compute: DurationDistribution | Duration
) -> tuple[Span, ...]:
    return simulate_time(
        strategy, workers, steps, model.cluster(compute), message_bytes=model.message_bytes, seed=model.seed,
        spans=8 * workers * steps, slots=SLOTS,
    ).trace.spans  # fmt: skip


def _of_one_group(step_model: StepModel, rounds: int) -> Trace:
    made: list[RoundTimes] = []
    durations = step_model.rounds(lambda _, one: made.append(one))
    now_s = 0.0
    spans: list[Span] = []
    for number in range(rounds):
        takes_s = durations(0, number)
        spans += _of_round(made[-1], 0, now_s, now_s + takes_s)
        now_s += takes_s
    return Trace(tuple(spans))


def _of_groups(step_model: StepModel, rounds: int) -> Trace:
    """One member of each exchanges with the server, while the others wait for it."""
    groups = step_model.strategy.groups or 1
    members = step_model.placement.workers // groups
    made: dict[str, list[RoundTimes]] = {f"worker {group}": [] for group in range(groups)}
    compute = step_model.rounds(lambda group, one: made[f"worker {group}"].append(one))
    played = _played(step_model, step_model.of_groups(), groups, rounds, compute)
    spans: list[Span] = []
    next_rounds = {who: iter(each) for who, each in made.items()}
    first = {who: members * group for group, who in enumerate(made)}
    for span in played:
        if span.who == SERVER:
            spans.append(span)
        elif span.part == "compute":
            spans += _of_round(next(next_rounds[span.who]), first[span.who], span.start_s, span.end_s)
        else:
            shown = range(first[span.who], min(first[span.who] + members, MOST_WORKERS))
            whats = (span.part, *["wait"] * (members - 1))
            spans += [
                Span(f"worker {worker}", what, span.start_s, span.end_s)
                for worker, what in zip(shown, whats, strict=False)
            ]
    return Trace(tuple(spans))


def _of_round(one: RoundTimes, first: int, start_s: float, end_s: float) -> Iterator[Span]:
    """Each member computes, waits for the slowest, and exchanges; a member that is too late only computes."""
    exchanges_s = start_s + one.exchanges_s
    for member in range(min(len(one.ends_s), max(0, MOST_WORKERS - first))):
        who, ready_s = f"worker {first + member}", start_s + float(one.ends_s[member])
        yield Span(who, "compute", start_s + float(one.begins_s[member]), ready_s)
        if ready_s > exchanges_s:
            continue
        if ready_s < exchanges_s:
            yield Span(who, "wait", ready_s, exchanges_s)
        if exchanges_s < end_s:
            yield Span(who, "all-reduce", exchanges_s, end_s)
