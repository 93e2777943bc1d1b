"""Trains candidates in rising order of predicted cost until the error of one is acceptable or the time is over."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Protocol

from paceline.advice.advice import Advice, Choice, TriedCandidate, error_words, options_text
from paceline.advice.advising import Consultation
from paceline.advice.network_choice import NetworkChoice
from paceline.errors import Diverged, InputError, Interrupted
from paceline.formatting import count, duration
from paceline.training.run import Epoch, Run
from paceline.training.watcher import Progress, Watcher
from paceline.workload import Workload

USUAL_TIME_S = 600.0
"""For all candidates, where no time was given."""


class Train(Protocol):
    def __call__(self, workload: Workload, *, out: Path | None, watcher: Watcher) -> Run: ...


class _OutOfTime(Interrupted):
    """The time for all candidates is over."""


class _Deadline(Watcher):
    """Ends a training when the time is over; keeps the record as it was after the last epoch."""

    def __init__(self, until_s: float, now_s: Callable[[], float]) -> None:
        self.until_s, self.now_s = until_s, now_s
        self.run: Run | None = None

    def begun(self, run: Run, notes: list[str]) -> None:
        self.run = run

    def advanced(self, progress: Progress) -> None:
        if self.now_s() >= self.until_s:
            raise _OutOfTime("the time for trying candidates is over")

    def finished_epoch(self, epoch: Epoch, run: Run) -> None:
        self.run = run


def try_candidates(
    asked: Consultation,
    train: Train,
    out: Path | None,
    tell: Callable[[TriedCandidate, str], None],
    now_s: Callable[[], float] = monotonic,
) -> Advice:
    """The advice for the first candidate whose error is acceptable, or for the best one, with all that were tried."""
    task = asked.task
    if task.error is None:
        raise InputError("trying candidates needs an acceptable `error`, e.g. 0.05 or '5%'")
    if asked.facts.stand_in:
        raise InputError("trying candidates needs your `data`: they are trained on them")
    limit_s = task.time_s if math.isfinite(task.time_s) else USUAL_TIME_S
    candidates = in_order_of_cost(asked)
    until_s = now_s() + limit_s
    trials: list[tuple[NetworkChoice, TriedCandidate]] = []
    name = "error"
    for chosen, workload, predicted_s in candidates:
        if now_s() >= until_s:
            break
        directory = f"{len(trials) + 1}-{workload.network}"
        deadline = _Deadline(until_s, now_s)
        began_s, status, why = now_s(), "finished", ""
        try:
            run: Run | None = train(workload, out=None if out is None else out / directory, watcher=deadline)
        except (_OutOfTime, Diverged) as error:
            run, why = deadline.run, str(error)
            status = "out of time" if isinstance(error, _OutOfTime) else "diverged"
        error_value, name = error_of(run) if run is not None else (math.nan, name)
        wall_s = run.wall_s if run is not None and status == "finished" else now_s() - began_s
        trial = TriedCandidate(
            workload, status, error_value, wall_s, predicted_s, error_value <= task.acceptable_error,
            "" if out is None else directory, why,
        )  # fmt: skip
        trials.append((chosen, trial))
        tell(trial, name)
        if trial.accepted:
            break
    return _advice(asked, trials, name, limit_s)


def in_order_of_cost(asked: Consultation) -> list[tuple[NetworkChoice, Workload, float]]:
    """The candidates with their workloads and predicted times; shallow first where not all can be predicted."""
    made = []
    for chosen in asked.networks:
        advice = asked.advise(chosen)
        workload = replace(advice.workload, epochs=max(advice.workload.epochs, 1))
        relative_s = asked.predictor.relative_s(workload, asked.options[0])
        made.append((relative_s, chosen, workload, advice.predicted_s))
    if all(relative_s is not None for relative_s, *_ in made):
        made.sort(key=lambda each: each[0] or 0.0)
    return [(chosen, workload, predicted_s) for _, chosen, workload, predicted_s in made]


def error_of(run: Run) -> tuple[float, str]:
    """The error on the test data, and its name: the metric that a network has, or the share of wrong answers."""
    points = [point for point in run.points if math.isfinite(point.test_loss) or math.isfinite(point.test_metric)]
    if not points:
        return math.nan, run.metric or "error"
    last = points[-1]
    if run.metric:
        return last.test_metric, run.metric
    if run.classes and math.isfinite(last.test_accuracy):
        return 1 - last.test_accuracy, "error"
    return last.test_loss, "test loss"


def _advice(
    asked: Consultation, trials: list[tuple[NetworkChoice, TriedCandidate]], name: str, limit_s: float
) -> Advice:
    """For the accepted candidate, else the one with the lowest error."""
    tried = tuple(trial for _, trial in trials)
    best = min(trials, key=lambda each: (not each[1].accepted, math.isnan(each[1].error), each[1].error), default=None)
    if best is None:
        raise InputError(f"`time={asked.task.time!r}` is over before any candidate was trained: give more")
    chosen, trial = best
    made = asked.advise(chosen)
    acceptable = error_words(asked.task.acceptable_error, name)
    reached = f"{name} {error_words(trial.error, name)} after {duration(trial.wall_s)} of training"
    if trial.accepted:
        before = len(tried) - 1
        why = f"{reached}, within the acceptable {acceptable}" + (
            f"; {count(before, 'cheaper candidate')} did not reach it" * bool(before)
        )
    else:
        why = f"the lowest of {len(tried)} tried: {reached}, above the acceptable {acceptable}"
    choices = [each if each.topic != "network" else Choice("network", each.value, why) for each in made.choices]
    ordered = {"tried": f"{len(tried)} of {len(asked.networks)} candidates within {duration(limit_s)}"}
    return replace(
        made, workload=trial.workload, choices=tuple(choices), trials=tried, error_name=name,
        conditions={**made.conditions, **ordered},
    )  # fmt: skip


def trial_words(trial: TriedCandidate, name: str) -> str:
    """One line about a trial."""
    options = options_text(trial.workload)
    what = f"{trial.workload.network} ({options})" if options else trial.workload.network
    return f"{what}: {name} {error_words(trial.error, name)}, {duration(trial.wall_s)}, {trial.status}"
