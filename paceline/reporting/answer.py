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
    tiles = tuple((value, what) for what, value in _tiles(records, runs).items() if value)
    return Answer(sentence, pictures, tiles, points, busy_sentence(records, runs))


def _sentences(records: Records, runs: Sequence[RunResult]) -> Iterator[Said]:
    """The answer first, then the summary."""
    if records.findings:  # a study has its own conclusions
        yield from ((given.sentence, (given.figure,)) for given in records.findings)
        yield unranked_sentence(runs), ()
        return
    yield from ((advice_sentence(advice), ("accuracy-time", "accuracy", "loss")) for _, advice in records.advice)
    yield from ((plan_sentence(plan), ("plan-front",)) for _, plan in records.plans)
    yield from ((cluster_sentence(scaling), ("cluster",)) for _, scaling in records.clusters)
    predicted, measured = records.all_predictions, measurement_names(records)
    if verified := any(math.isfinite(row.error) for row in predicted):
        yield prediction_sentence(predicted), ("predictions",)
        yield coverage_sentence(predicted), ()
    trained = [run for run in runs if run.run is not None or run.row["kind"] == "train"]
    series = series_by_workers(runs)
    if series:
        found: dict[str, Sequence[RunResult]] = {
            f"{one.name} with {count(point.workers, 'worker')}": point.runs for one in series for point in one.points
        }
        inside = {run for some in found.values() for run in some}
        others = groups_of(run for run in trained if run not in inside)
        pictures = ("accuracy-time", "throughput") if others else ("time-to-accuracy", "accuracy-time", "throughput")
        yield first_to_target_sentence(found | others), pictures
        yield scaling_sentence(series), ("throughput", "accuracy-time")
    elif len(runs) == 1 and (run := runs[0].run) is not None:
        curves = ("accuracy", "metric", "loss") if len(runs[0].curve) > 1 else ()  # a single point is no curve
        yield run_sentence(run), (*curves, "wall-clock", "timeline")
        yield device_sentence(run), ()
        yield from ((f"Warning: {warning}.", ()) for warning in run.warnings)
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
    if predicted and not verified:
        yield prediction_sentence(predicted), ("predictions",)
    if records.failed:
        yield f"{count(len(records.failed), 'run')} failed; first error: {records.failed[0][1].error}.", ()


def run_sentence(run: Run) -> str:
    d, network = run.distribution, shown_name(run.workload.network)
    if run.status != "finished":
        what = {"running": "was still running", "interrupted": "was interrupted"}.get(run.status, run.status)
        why = f": {run.error}" if run.status == "failed" and run.error else ""
        return f"{network} {what} after {count(run.updates, 'update')} and {duration(run.wall_s)}{why.rstrip('.')}."
    score = f"{run.metric} of {run.test_metric:.4g}" if run.metric else f"loss of {run.test_loss:.4f}"
    reached = f"a test {score}" if math.isnan(run.test_accuracy) else f"{percent(run.test_accuracy)} test accuracy"
    seconds, workers = duration(run.wall_s), ""
    if d is not None:
        kind = "simulated worker" if run.is_simulated else "worker"
        workers = f" with {count(d.workers, kind)} ({d.strategy.name})"
        seconds = f"{duration(d.seconds)} of simulated time" if run.is_simulated else seconds
    if run.division is not None and len(run.division.processes) > 1:
        workers = f", divided among {len(run.division.processes)} processes"
    return f"{network} reached {reached} in {count(len(run.epochs), 'epoch')} and {seconds}{workers}."


def device_sentence(run: Run) -> str:
    where = f"{shown_name(run.workload.data)} on {run.conditions.device_name}"
    if run.is_simulated:
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


def _tiles(records: Records, runs: Sequence[RunResult]) -> dict[str, str]:
    """Values by caption; those without a value are left out."""
    if len(runs) == 1:
        return _tiles_of_one(runs[0])
    if not runs:
        return _tiles_of_plan(records.plans[0][1]) if records.plans else _tiles_of_measurements(records)
    told = [run for run in runs if not run.settings["data"].startswith("synthetic")]  # made-up data
    best = largest([run.accuracy for run in told if run.ranked])
    workers, settings = sorted({run.workers for run in runs}), len(groups_of(runs))
    return {
        "runs" if all(run.driver != TIMED for run in runs) else "runs and simulations": f"{len(runs):,}",
        "settings": f"{settings:,}" if settings < len(runs) else "",
        "best test accuracy": percent(best) if math.isfinite(best) else "",
        "workers": f"{workers[0]:,} to {workers[-1]:,}" if len(workers) > 1 else "",
        "total computing time": duration(sum(run.wall_s for run in runs if math.isfinite(run.wall_s))),
    }


def _tiles_of_one(run: RunResult) -> dict[str, str]:
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
    return found


def _tiles_of_plan(plan: Plan) -> dict[str, str]:
    pick = plan.pick
    return {
        "predicted training time": time_words(pick.time_s),
        plan.currency: amount_words(pick.money),
        f"{pick.candidate.machine}, {pick.candidate.device}": f"{pick.machines:,}",
        "workers" if pick.candidate.workers != 1 else "worker": f"{pick.candidate.workers:,}",
        f"batch size per worker, {pick.candidate.precision}": f"{pick.candidate.batch:,}",
    }


def _tiles_of_measurements(records: Records) -> dict[str, str]:
    if len(records.measurements) != 1:
        return {}
    m = records.measurements[0][1]
    speed = m.batch / m.iteration_s.median_s if m.iteration_s.median_s > 0 else math.nan
    return {
        "per iteration (median)": duration(m.iteration_s.median_s),
        "throughput": rate(speed) if math.isfinite(speed) else "–",
        "of the iteration attributed": percent(m.accounted),
        "overhead of measuring, in a run of an hour": signed_percent(max(0.0, m.overhead_hour)),
        "peak memory": f"{m.peak_memory_bytes / 1e9:.3g} GB",
    }


def title_of(records: Records, runs: Sequence[RunResult]) -> str:
    if records.title:
        return records.title
    planned = [plan.workload for _, plan in records.plans] + [scaling.workload for _, scaling in records.clusters]
    planned += [advice.workload for _, advice in records.advice]
    networks = [run.settings["network"] for run in runs] + [m.name for _, m in records.measurements]
    networks += [workload.network for workload in planned]
    data = [run.settings["data"] for run in runs] + [workload.data for workload in planned]
    trained, on = (listed(map(shown_name, dict.fromkeys(names)), 3) for names in (networks, data))
    return f"{trained}{' on ' + on if on else ''}" if trained else "Report"
