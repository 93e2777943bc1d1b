"""The first screen of a page: the answer in one sentence and the picture that shows it; then a short summary."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from paceline.formatting import count, duration, largest, listed, median_of, number, percent, rate, signed_percent
from paceline.held_objects import shown_name
from paceline.planning.plan import Plan
from paceline.planning.reasons import amount_words, time_words
from paceline.reporting.sections.advised import advice_sentence
from paceline.reporting.sections.clusters import cluster_sentence
from paceline.reporting.sections.comparisons import coverage_sentence, prediction_sentence, published_sentence
from paceline.reporting.sections.layers import iteration_sentence, uneven_sentence
from paceline.reporting.sections.plans import plan_sentence
from paceline.reporting.sections.scaling import scaling_sentence
from paceline.reporting.sections.setting import busy_sentence, unranked_sentence
from paceline.reporting.series import all_seconds_to_accuracy, series_by_workers, target_accuracy
from paceline.results.noise import LEAST_GAIN, differs, unrepeated
from paceline.results.records import Records
from paceline.results.run_result import LOCAL, TIMED, RunResult, groups_of, measurement_names
from paceline.training.run import Run

Tile = tuple[str, str]  # value and caption
Said = tuple[str, tuple[str, ...]]  # a sentence and the figures that show it, best first
MOST_POINTS = 5
NOTHING = "There is no run or measurement here yet."


@dataclass(frozen=True)
class Answer:
    sentence: str
    pictures: tuple[str, ...]  # the first one that the page has is drawn below the sentence
    tiles: tuple[Tile, ...]
    summary: tuple[str, ...] = ()
    busy: str = ""  # what made measured times longer


def answer_of(records: Records, runs: Sequence[RunResult]) -> Answer:
    found = [said for said in _sentences(records, runs) if said[0]] or [(NOTHING, ())]
    sentence, pictures = found[0]
    points = tuple(said for said, _ in found[1 : 1 + MOST_POINTS])
    return Answer(sentence, pictures, _tiles(records, runs), points, busy_sentence(records, runs))


def _sentences(records: Records, runs: Sequence[RunResult]) -> Iterator[Said]:
    """The answer first, then the summary."""
    if records.findings:  # a study has its own conclusions
        yield from ((given.sentence, (given.figure,)) for given in records.findings)
        yield unranked_sentence(runs), ()
        return
    yield from ((advice_sentence(advice), ("accuracy-time", "accuracy", "loss")) for _, advice in records.advice)
    yield from ((plan_sentence(plan), ("plan-front",)) for _, plan in records.plans)
    yield from ((cluster_sentence(scaling), ("cluster",)) for _, scaling in records.clusters)
    predicted = records.all_predictions
    measured = measurement_names(records)
    if any(math.isfinite(row.error) for row in predicted):
        yield prediction_sentence(predicted), ("predictions",)
        yield coverage_sentence(predicted), ()
    trained = [run for run in runs if run.run is not None or run.row["kind"] == "train"]
    series = series_by_workers(runs)
    if series:
        points = [(one.name, point) for one in series for point in one.points]
        found: dict[str, Sequence[RunResult]] = {
            f"{name} with {count(point.workers, 'worker')}": point.runs for name, point in points
        }
        inside = {run for some in found.values() for run in some}
        others = groups_of(run for run in trained if run not in inside)
        pictures = ("accuracy-time", "throughput") if others else ("time-to-accuracy", "accuracy-time", "throughput")
        yield first_to_target_sentence(found | others), pictures
        yield scaling_sentence(series), ("throughput", "accuracy-time")
    elif len(trained) == 1 and len(runs) == 1 and trained[0].run is not None:
        curves = ("accuracy", "metric", "loss") if len(trained[0].curve) > 1 else ()  # a single point is no curve
        yield run_sentence(trained[0].run), (*curves, "wall-clock", "timeline")
        yield device_sentence(trained[0]), ()
        yield from ((f"Warning: {warning}.", ()) for warning in trained[0].run.warnings)
    if trained and len(runs) > 1:
        if not series and len({(run.driver, run.settings.get("strategy")) for run in trained}) > 1:
            yield first_to_target_sentence(groups_of(trained)), ("accuracy-time",)
        yield best_sentence(trained), ("accuracy-time", "accuracy-updates", "accuracy", "wall-clock")
        yield unranked_sentence(runs), ()
    elif runs and not trained and not series:
        yield simulation_sentence(runs), ("shares", "timeline", "by-worker")
    if measured:
        yield iteration_sentence(*measured[0]), ("layers", "parts")
        yield uneven_sentence(measured[0][1]), ()
    if any(math.isfinite(row.ratio) for row in records.published):
        yield published_sentence(records.published), ("published",)
    if predicted and not any(math.isfinite(row.error) for row in predicted):
        yield prediction_sentence(predicted), ("predictions",)
    if records.failed:
        yield f"{count(len(records.failed), 'run')} failed; first error: {records.failed[0][1].error}.", ()


def run_sentence(run: Run) -> str:
    d, w = run.distribution, run.workload
    if run.status != "finished":
        what = {"running": "was still running", "interrupted": "was interrupted"}.get(run.status, run.status)
        why = f": {run.error}" if run.status == "failed" and run.error else ""
        so_far = f"{count(run.updates, 'update')} and {duration(run.wall_s)}"
        return f"{shown_name(w.network)} {what} after {so_far}{why.rstrip('.')}."
    if math.isnan(run.test_accuracy) and run.metric:
        reached = f"a test {run.metric} of {run.test_metric:.4g}"
    elif math.isnan(run.test_accuracy):
        reached = f"a test loss of {run.test_loss:.4f}"
    else:
        reached = f"{percent(run.test_accuracy)} test accuracy"
    workers = "" if d is None else f" with {count(d.workers, 'worker')} ({d.strategy.name})"
    if run.division is not None and len(run.division.processes) > 1:
        workers = f", divided among {len(run.division.processes)} processes"
    seconds = duration(run.wall_s)
    if d is not None and run.is_simulated:
        workers = f" with {count(d.workers, 'simulated worker')} ({d.strategy.name})"
        seconds = f"{duration(d.seconds)} of simulated time"
    return f"{shown_name(w.network)} reached {reached} in {count(len(run.epochs), 'epoch')} and {seconds}{workers}."


def device_sentence(run: RunResult) -> str:
    record = run.run
    assert record is not None
    where = f"{shown_name(record.workload.data)} on {record.conditions.device_name}"
    if run.virtual:
        return f"Gradients are real, computed from {where}; time is simulated."
    return f"Training on {where} ran at {rate(run.samples_per_s)}." if math.isfinite(run.samples_per_s) else ""


def first_to_target_sentence(found: Mapping[str, Sequence[RunResult]]) -> str:
    """The fastest to an accuracy, among measured runs, or simulated ones if none was measured; empty if unclear."""
    virtual = all(run.virtual for runs in found.values() for run in runs)
    same_clock = {name: runs for name, runs in found.items() if runs[-1].virtual == virtual}
    target = target_accuracy([run for runs in same_clock.values() for run in runs])
    times_s = {name: all_seconds_to_accuracy(runs, target) for name, runs in same_clock.items()}
    ranked = [name for name, runs in same_clock.items() if times_s[name] and any(run.ranked for run in runs)]
    if len(ranked) < 2:
        return ""
    first, second = sorted(ranked, key=lambda name: median_of(times_s[name]))[:2]
    accuracy, clock = f"{percent(target, 0)} test accuracy", " of simulated time" if virtual else ""
    took = f"{duration(median_of(times_s[first]))}{clock}"
    apart, once = differs(times_s[first], times_s[second]), unrepeated(times_s[first], times_s[second])
    close = median_of(times_s[second]) < (1 + LEAST_GAIN) * median_of(times_s[first])
    first = re.sub("^one process", "One process", first)  # names of strategies are not capitalized
    if apart is False:
        return f"{first} and {second} reach {accuracy} equally fast within noise: {took}."
    if close:
        return f"{first} and {second} reach {accuracy} about equally fast: {took}{once}."
    return f"{first} is the first to reach {accuracy}, after {took}{once}."


def best_sentence(runs: Sequence[RunResult]) -> str:
    """The most accurate setting, unless its lead is within the noise of repetitions."""
    ranked = [run for run in runs if run.ranked]
    learned = {run.group for run in ranked}  # a repetition that did not learn counts where another one did
    known = groups_of(run for run in runs if run.labelled and run.status == "finished" and run.group in learned)
    if not known:
        many = count(len(runs), "run")
        by_metric = [run for run in ranked if run.has_network_metric]
        if by_metric and len({run.metric_name for run in ranked}) == 1:
            least = min(by_metric, key=lambda run: run.metric_value)
            return f"The lowest test {least.metric_name} of {many} is that of {least.label}: {least.metric_value:.4g}."
        best = min(ranked, key=lambda run: run.loss if math.isfinite(run.loss) else math.inf, default=None)
        return f"The lowest test loss of {many} is that of {best.label}: {best.loss:.4f}." if best else ""
    accuracies = {name: [run.accuracy for run in some] for name, some in known.items()}
    order = sorted(accuracies, key=lambda name: -median_of(accuracies[name]))
    best_name, top = order[0], accuracies[order[0]]
    if len(top) == len(order) == 1:
        return f"{best_name} reached {percent(top[0])} test accuracy."
    if len(order) == 1:
        ends = f"{percent(min(top))} and {percent(max(top))}"
        return f"{count(len(top), 'run')} of {best_name} ended between {ends} test accuracy."
    settings = len(groups_of(runs))
    apart, once = differs(top, accuracies[order[1]]), unrepeated(top, accuracies[order[1]])
    if apart is False:
        tied = sum(differs(top, accuracies[name]) is False for name in order[1:]) + 1
        return f"{tied} of {settings} settings are equally accurate within noise, at about {percent(median_of(top))}."
    high, low = (percent(median_of(accuracies[name])) for name in (best_name, order[-1]))
    if high == low:
        return f"All {len(order)} settings reach the same test accuracy: {high}{once}."
    if apart is None:  # without repetitions, which of them is best is not known
        return f"Test accuracy ranges from {low} with {order[-1]} to {high} with {best_name}{once}."
    return f"The most accurate of {settings} settings is {best_name}: {high} test accuracy."


def simulation_sentence(runs: Sequence[RunResult]) -> str:
    if len(runs) > 1:
        best = max(runs, key=lambda run: run.samples_per_s if math.isfinite(run.samples_per_s) else 0.0)
        return f"The fastest of {count(len(runs), 'simulation')} is {best.label}: {rate(best.samples_per_s)}."
    run, d = runs[0], runs[0].distribution
    if d is None:
        return f"{run.label}: {rate(run.samples_per_s)} in simulation."
    said = f"{count(run.workers, 'simulated worker')} with {d.strategy.name}: {rate(d.steps_per_s, 'steps')}"
    return said + (f", {percent(d.waiting_share, 0)} of the time waiting." if math.isfinite(d.waiting_share) else ".")


def _tiles(records: Records, runs: Sequence[RunResult]) -> tuple[Tile, ...]:
    if len(runs) == 1:
        return _tiles_of_one(runs[0])
    if not runs:
        return _tiles_of_plan(records.plans[0][1]) if records.plans else _tiles_of_measurements(records)
    told = [run for run in runs if not run.settings["data"].startswith("synthetic")]  # made-up data
    best = largest([run.accuracy for run in told if run.ranked])
    workers = sorted({run.workers for run in runs})
    found = [(f"{len(runs):,}", "runs" if all(run.driver != TIMED for run in runs) else "runs and simulations")]
    if len(groups_of(runs)) < len(runs):
        found.append((f"{len(groups_of(runs)):,}", "settings"))
    if math.isfinite(best):
        found.append((percent(best), "best test accuracy"))
    if len(workers) > 1:
        found.append((f"{workers[0]:,} to {workers[-1]:,}", "workers"))
    found.append((duration(sum(run.wall_s for run in runs if math.isfinite(run.wall_s))), "total computing time"))
    return tuple(found)


def _tiles_of_one(run: RunResult) -> tuple[Tile, ...]:
    record, clock = run.run, ", simulated" if run.virtual else ""
    found = {"test accuracy": percent(run.accuracy) if run.labelled else ""}
    if run.labelled and record is not None:
        found[f"test top-{record.workload.top} accuracy"] = percent(record.test_top_accuracy) * bool(record.shown_top)
    elif math.isfinite(run.loss):
        found["test loss"] = number(run.loss)
    if math.isfinite(run.metric_value):
        found[f"test {run.metric_name}"] = number(run.metric_value)
    found[f"throughput{clock}"] = rate(run.samples_per_s) if math.isfinite(run.samples_per_s) else ""
    found[f"total time{clock}"] = duration(run.seconds if run.virtual else run.wall_s)
    if run.driver == LOCAL or run.virtual:
        found["workers" if run.workers != 1 else "worker"] = f"{run.workers:,}"
    found["updates" + (f" of {record.parameters:,} parameters" if record is not None else "")] = f"{run.updates:,}"
    return tuple((value, what) for what, value in found.items() if value)


def _tiles_of_plan(plan: Plan) -> tuple[Tile, ...]:
    pick = plan.pick
    return (
        (time_words(pick.time_s), "predicted training time"),
        (amount_words(pick.money), plan.currency),
        (f"{pick.machines:,}", f"{pick.candidate.machine}, {pick.candidate.device}"),
        (f"{pick.candidate.workers:,}", "workers" if pick.candidate.workers != 1 else "worker"),
        (f"{pick.candidate.batch:,}", f"batch size per worker, {pick.candidate.precision}"),
    )


def _tiles_of_measurements(records: Records) -> tuple[Tile, ...]:
    if len(records.measurements) != 1:
        return ()
    m = records.measurements[0][1]
    speed = m.batch / m.iteration_s.median_s if m.iteration_s.median_s > 0 else math.nan
    return (
        (duration(m.iteration_s.median_s), "per iteration (median)"),
        (rate(speed) if math.isfinite(speed) else "–", "throughput"),
        (percent(m.accounted), "of the iteration attributed"),
        (signed_percent(max(0.0, m.overhead_hour)), "overhead of measuring, in a run of an hour"),
        (f"{m.peak_memory_bytes / 1e9:.3g} GB", "peak memory"),
    )


def title_of(records: Records, runs: Sequence[RunResult]) -> str:
    if records.title:
        return records.title
    planned = [plan.workload for _, plan in records.plans] + [scaling.workload for _, scaling in records.clusters]
    planned += [advice.workload for _, advice in records.advice]
    networks = [run.settings["network"] for run in runs] + [m.name for _, m in records.measurements]
    networks = list(dict.fromkeys([*networks, *(workload.network for workload in planned)]))
    data = list(dict.fromkeys([*(run.settings["data"] for run in runs), *(workload.data for workload in planned)]))
    networks, data = [shown_name(name) for name in networks], [shown_name(name) for name in data]
    return f"{listed(networks, 3)}{' on ' + listed(data, 3) if data else ''}" if networks else "Report"
