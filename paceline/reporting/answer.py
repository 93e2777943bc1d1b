"""The first thing on a page: what came out, in one sentence, the picture that shows it, and a few figures."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from paceline.formatting import brief, count, duration, largest, listed, middle, number, percent, times
from paceline.planning.plan import Plan
from paceline.planning.reasons import time_words
from paceline.reporting.reaching import seconds_all_to, seconds_to, target_accuracy
from paceline.reporting.sections.clusters import cluster_sentence
from paceline.reporting.sections.comparisons import prediction_sentence, published_sentence
from paceline.reporting.sections.layers import iteration_sentence
from paceline.reporting.sections.plans import plan_sentence
from paceline.reporting.sections.scaling import scaling_sentence
from paceline.reporting.sections.scaling_lines import Line, scaling_lines
from paceline.results.records import Records
from paceline.results.run_result import LOCAL, TIMED, RunResult, groups_of, measurement_names
from paceline.training.run import Run

Tile = tuple[str, str]
"""A figure, and what it is of."""


@dataclass(frozen=True)
class Answer:
    sentence: str
    pictures: tuple[str, ...]
    """Figures that show it; the first of them that the page has is drawn beside the sentence."""
    tiles: tuple[Tile, ...]
    more: tuple[str, ...] = ()
    """What else is worth saying at once."""


Finding = tuple[str, tuple[str, ...]]
"""A sentence, and the figures that show it."""


def answer_of(records: Records, runs: Sequence[RunResult]) -> Answer:
    """The most important finding, and up to two others."""
    found = list(_findings(records, runs)) or [(f"{count(records.found, 'record')}.", ())]
    sentence, pictures = found[0]
    more = found[1 : len(records.findings) or 3]
    return Answer(sentence, pictures, _tiles(records, runs), tuple(said for said, _ in more))


def _findings(records: Records, runs: Sequence[RunResult]) -> Iterator[Finding]:
    if records.findings:  # who made the experiment knows best what it is about
        yield from ((given.sentence, (given.figure,)) for given in records.findings)
        return
    yield from ((plan_sentence(plan), ("plan-front",)) for _, plan in records.plans)
    yield from ((cluster_sentence(scaling), ("cluster",)) for _, scaling in records.clusters)
    predicted = records.all_predictions
    if any(math.isfinite(row.error) for row in predicted):
        yield prediction_sentence(predicted), ("predictions",)
    trained = [run for run in runs if run.run is not None]
    lines = scaling_lines(runs)
    if lines and (sooner := _soonest_sentence(lines)):
        yield sooner, ("time-to-accuracy", "accuracy-time", "throughput")
        yield scaling_sentence(lines), ("throughput",)
    elif lines:
        yield scaling_sentence(lines), ("throughput", "accuracy-time")
    elif len(trained) == 1 and len(runs) == 1 and trained[0].run is not None:
        yield run_sentence(trained[0].run), ("accuracy", "loss", "wall-clock", "timeline")
        yield from ((f"Warning: {warning}.", ()) for warning in trained[0].run.warnings)
    elif trained:
        yield _best_sentence(trained), ("accuracy-time", "accuracy-updates", "accuracy", "wall-clock")
    elif runs:
        yield _simulation_sentence(runs), ("shares", "timeline", "by-worker")
    if measured := measurement_names(records):
        yield iteration_sentence(*measured[0]), ("layers", "parts")
    if any(math.isfinite(row.ratio) for row in records.published):
        yield published_sentence(records.published), ("published",)
    if predicted and not any(math.isfinite(row.error) for row in predicted):
        best = min(predicted, key=lambda row: row.predicted)
        yield (
            f"{best.name} is predicted to be best: {number(best.predicted)} {best.unit}".rstrip() + ".",
            ("predictions",),
        )
    if records.failed:
        yield f"{count(len(records.failed), 'run')} failed; the first with: {records.failed[0][1].error}.", ()


def run_sentence(run: Run) -> str:
    seconds, d = duration(run.wall_s), run.distribution
    if run.status != "finished":
        what = {"running": "was still running", "interrupted": "was interrupted"}.get(run.status, run.status)
        updates = count(run.updates, "update")
        why = f": {run.error}" if run.status == "failed" and run.error else ""
        return f"{run.workload.network} on {run.workload.data} {what} after {updates} and {seconds}{why.rstrip('.')}."
    if math.isnan(run.test_accuracy):
        reached = f"reaches a test loss of {run.test_loss:.4f}"
    else:
        reached = f"classifies {percent(run.test_accuracy)} of the test samples correctly"
    after = f"After {count(len(run.epochs), 'epoch')} and {seconds} on {run.conditions.device_name}"
    if d is not None and d.driver == "virtual":
        after = (
            f"After {count(len(run.epochs), 'epoch')} with {count(d.workers, 'simulated worker')} and {d.strategy.name}"
        )
        return f"{after}, {run.workload.network} {reached}; that took {duration(d.seconds)} of simulated time."
    if d is not None:
        after += f" with {count(d.workers, 'worker')} and {d.strategy.name}"
    speed = f"; it trained on {run.samples_per_s:,.0f} samples a second" if math.isfinite(run.samples_per_s) else ""
    return f"{after}, {run.workload.network} {reached}{speed}."


def _soonest_sentence(lines: Sequence[Line]) -> str:
    """Who is first to be accurate; empty where fewer than two are."""
    levels = [(line, level) for line in lines if line.virtual == lines[0].virtual for level in line.levels]
    target = target_accuracy([run for _, level in levels for run in level.runs])
    reached = [(middle(s), line, level) for line, level in levels if (s := seconds_all_to(level.runs, target))]
    if len(reached) < 2:
        return ""
    quickest, line, level = min(reached, key=lambda entry: entry[0])
    said = (
        f"{line.name} with {count(level.workers, 'worker')} is the first to reach {percent(target, 0)} test accuracy, "
    )
    said += f"after {duration(quickest)}{' of simulated time' if line.virtual else ''}"
    began = middle(seconds_all_to(line.levels[0].runs, target))
    if level is not line.levels[0] and math.isfinite(began):
        said += f": {times(began / quickest)} as fast as with {line.levels[0].workers}"
    missed = len(levels) - len(reached)
    return said + (f"; {missed} of {len(levels)} settings do not reach it." if missed else ".")


def _best_sentence(runs: Sequence[RunResult]) -> str:
    """Of runs that do not differ in their workers."""
    known = [run for run in runs if run.labelled]
    if not known:
        best = min(runs, key=lambda run: run.loss if math.isfinite(run.loss) else math.inf)
        return f"Of {count(len(runs), 'run')}, {best.label} ends with the lowest test loss, {best.loss:.4f}."
    groups = {name: middle(run.accuracy for run in some) for name, some in groups_of(known).items()}
    best_group = max(groups, key=lambda name: groups[name])
    if len(groups) == 1:
        low, high = min(run.accuracy for run in known), max(run.accuracy for run in known)
        said = f"{count(len(known), 'repetition')} of {best_group} end between {percent(low)} and {percent(high)}"
        return f"{said} test accuracy."
    target = target_accuracy(known)
    times_s = {
        name: middle(seconds_to(run, target) for run in some)
        for name, some in groups_of(run for run in known if not run.virtual).items()
    }
    quick = {name: seconds for name, seconds in times_s.items() if math.isfinite(seconds)}
    said = f"Of {len(groups)} settings, {best_group} is the most accurate: {percent(groups[best_group])}"
    if len(quick) > 1:
        first = min(quick, key=lambda name: quick[name])
        whose = "it is also the first" if first == best_group else f"{first} is the first"
        said += f"; {whose} to reach {percent(target, 0)}, after {duration(quick[first])}"
    return f"{said}."


def _simulation_sentence(runs: Sequence[RunResult]) -> str:
    if len(runs) > 1:
        best = max(runs, key=lambda run: run.samples_per_s if math.isfinite(run.samples_per_s) else 0.0)
        speed = f"{number(best.samples_per_s)} samples a second of simulated time"
        return f"Of {count(len(runs), 'simulation')}, {best.label} is the fastest: {speed}."
    run = runs[0]
    d = run.distribution
    assert d is not None
    said = f"{count(run.workers, 'simulated worker')} with {d.strategy.name} "
    said += f"{'makes' if run.workers == 1 else 'make'} {number(d.steps_per_s)} steps a second"
    if math.isfinite(d.waiting_share):
        said += f" and {'waits' if run.workers == 1 else 'wait'} for {percent(d.waiting_share, 0)} of their time"
    return f"{said}."


def _tiles(records: Records, runs: Sequence[RunResult]) -> tuple[Tile, ...]:
    if len(runs) == 1:
        return _tiles_of_one(runs[0])
    if not runs:
        return _tiles_of_plan(records.plans[0][1]) if records.plans else _tiles_of_measurements(records)
    best = largest([run.accuracy for run in runs])
    workers = sorted({run.workers for run in runs})
    found = [(f"{len(runs):,}", "runs" if all(run.driver != TIMED for run in runs) else "runs and simulations")]
    if len(groups_of(runs)) < len(runs):
        found.append((f"{len(groups_of(runs)):,}", "different settings"))
    if math.isfinite(best):
        found.append((percent(best), "best test accuracy"))
    if len(workers) > 1:
        found.append((f"{workers[0]:,} to {workers[-1]:,}", "workers"))
    found.append((brief(sum(run.wall_s for run in runs if math.isfinite(run.wall_s))), "of this machine's time"))
    return tuple(found)


def _tiles_of_one(run: RunResult) -> tuple[Tile, ...]:
    found = []
    if run.labelled and run.run is not None:
        found.append((percent(run.accuracy), "test accuracy"))
        found.append((percent(run.run.test_top_accuracy), f"test top-{run.run.workload.top}"))
    elif run.run is not None:
        found.append((number(run.loss), "test loss"))
    clock = ", simulated" if run.virtual else ""
    found.append(
        (number(round(run.samples_per_s)) if math.isfinite(run.samples_per_s) else "–", f"samples a second{clock}")
    )
    found.append(
        (brief(run.seconds if run.virtual else run.wall_s), f"{'of simulated time' if clock else 'all in all'}")
    )
    if run.driver == LOCAL or run.virtual:
        found.append((f"{run.workers:,}", "workers" if run.workers != 1 else "worker"))
    parameters = f" of {run.run.parameters:,} parameters" if run.run is not None else ""
    found.append((f"{run.updates:,}", f"updates{parameters}"))
    return tuple(found)


def _tiles_of_plan(plan: Plan) -> tuple[Tile, ...]:
    pick = plan.pick
    return (
        (time_words(pick.time_s), "of training"),
        (number(pick.money), plan.currency),
        (f"{pick.machines:,}", f"{pick.candidate.machine}, {pick.candidate.device}"),
        (f"{pick.candidate.workers:,}", "workers" if pick.candidate.workers != 1 else "worker"),
        (f"{pick.candidate.batch:,}", f"samples a step of each, {pick.candidate.precision}"),
    )


def _tiles_of_measurements(records: Records) -> tuple[Tile, ...]:
    if len(records.measurements) != 1:
        return ((f"{len(records.measurements):,}", "measurements"),) if records.measurements else ()
    m = records.measurements[0][1]
    speed = m.batch / m.iteration_s.median_s if m.iteration_s.median_s > 0 else math.nan
    return (
        (brief(m.iteration_s.median_s), "an iteration"),
        (number(round(speed)) if math.isfinite(speed) else "–", "samples a second"),
        (percent(m.accounted, 1), "of it accounted for"),
        (f"{100 * m.overhead:+.1f} %", "cost of looking"),
        (f"{m.peak_memory_bytes / 2**30:.2f} GiB", "memory at most"),
    )


def title_of(records: Records, runs: Sequence[RunResult]) -> str:
    if records.title:
        return records.title
    planned = [plan.workload for _, plan in records.plans]
    networks = [run.settings["network"] for run in runs] + [m.name for _, m in records.measurements]
    networks = list(dict.fromkeys([*networks, *(workload.network for workload in planned)]))
    data = list(dict.fromkeys([*(run.settings["data"] for run in runs), *(workload.data for workload in planned)]))
    return f"{listed(networks, 3)}{' on ' + listed(data, 3) if data else ''}" if networks else "A report"
