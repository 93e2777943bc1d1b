"""Settings and results of the runs, and the conditions they ran under: machine, versions, links."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict

from paceline.formatting import as_number, count, duration, in_order, listed, percent
from paceline.measurement.measurement import Measurement
from paceline.measurement.measurement_text import overhead_text
from paceline.reporting.figure import Cell, Column, Section, TableBlock, filled, listing, section, table
from paceline.reporting.series import seconds_to_accuracy, target_accuracy
from paceline.results.labels import differing
from paceline.results.records import Records
from paceline.results.run_result import LOCAL, ONE_PROCESS, SIMULATED, TIMED, RunResult, groups_of, values_of

MOST_STEPS = 30
MOST_WARNINGS = 10
BUSY = "this machine is busy"
NOT_OF_THE_MACHINE = ("busy", "made_in")  # shown elsewhere, or not at all: pages do not reveal paths
IN_SECONDS = ("compute_time", "server_time", "network_time", "latency", "busy_timeout", "timeout")
NOT_A_SETTING = ("driver", "processor", "PyTorch", "Paceline", "step")
NOT_A_COLUMN = ("workers", "Paceline")
MOST_SETTINGS = 6
YES_NO = {"True": "yes", "False": "no"}


def what_was_run(records: Records, runs: Sequence[RunResult]) -> Section | None:
    sentences = [*_of_runs(runs), *_of_measurements(records.measurements)]
    sentences += [f"{count(len(records.failed), 'run')} failed."] if records.failed else []
    unequal = [key for key in differing([run.settings for run in runs]) if key not in NOT_A_SETTING]
    shared = {k: v for run in runs[:1] for k, v in run.settings.items() if k not in (*unequal, *NOT_A_SETTING)}
    same = [(_word(key), _said(key, value)) for key, value in shared.items()]
    title = "Settings that all runs share" if len(runs) > 1 else "All settings"
    differ = [(_word(key), _values(runs, key)) for key in unequal]
    scores = [
        (place, e.workload.network, e.data, e.samples, 100 * e.accuracy, e.loss) for place, e in records.evaluations
    ]
    failed = [(f.run.label, f.error, place) for place, f in records.failed]
    scored = ("record", "network", "data", "test samples", Column("accuracy", "%"), Column("loss"))
    blocks = (
        listing("unequal", "Settings that differ", ("setting", "values"), differ),
        listing("settings", title, ("setting", "value"), same, folded=True),
        listing("evaluations", "Evaluations", scored, scores),
        listing("failed", "Failed runs", ("run", "error", "place"), failed),
    )
    shown = tuple(block for block in blocks if block is not None)
    return Section("what", "Runs and settings", tuple(sentences), blocks=shown) if sentences else None


def _values(runs: Sequence[RunResult], key: str) -> str:
    """Settings of strategies are recorded only if they differ from the default."""
    said = listed((_said(key, value) for value in values_of(runs, key)), 20)
    without = [run for run in runs if key not in run.settings]
    if without and all(run.driver == ONE_PROCESS for run in without) and key in ("strategy", "workers"):
        return f"{said}; one process"
    return f"{said}; not set in every run" if without else said


def _word(key: str) -> str:
    return key.replace("_", " ")


def _said(key: str, value: str) -> str:
    """Booleans as yes or no; times and bandwidths with units."""
    amount = as_number(value)
    if isinstance(amount, int | float) and key in IN_SECONDS:
        return duration(amount)
    if isinstance(amount, int | float) and key == "bandwidth":
        return f"{amount / 1e9:g} GB/s"
    return YES_NO.get(value, value)


def _of_runs(runs: Sequence[RunResult]) -> Iterable[str]:
    for driver, words in (
        (ONE_PROCESS, "trained in one process"),
        (LOCAL, "trained by several processes on one machine"),
        (SIMULATED, "trained on a simulated cluster"),
        (TIMED, "timed without gradients on a simulated cluster"),
    ):
        some = [run for run in runs if run.driver == driver]
        if not some:
            continue
        what = count(len(some), "simulation" if driver == TIMED else "run")
        said = f"{what} of {_listed(some, 'network')} on {_listed(some, 'data')}, {words}"
        if driver != ONE_PROCESS:
            workers = _listed(some, "workers")
            said += f" with {_listed(some, 'strategy')} and {workers} worker{'s' * (workers != '1')}"
        if driver != TIMED:
            epochs = _listed(some, "epochs")
            said += f"; {epochs} epoch{'s' * (epochs != '1')} at batch size {_listed(some, 'batch')}"
            said += f" with {_listed(some, 'optimizer')}"
        seeds = len(values_of(some, "seed"))
        yield f"{said}; {seeds} seeds." if seeds > 1 else f"{said}."
    if said := unranked_sentence(runs):
        yield said
    warned = groups_of(run for run in runs if run.run and run.run.warnings)
    for group, some in list(warned.items())[:MOST_WARNINGS]:
        whose = f"{group}: " if len(runs) > 1 else ""
        which = f" (the first of {len(some)} runs)" if len(some) > 1 else ""
        yield from (f"Warning: {whose}{warning}{which}." for run in some[:1] if run.run for warning in run.run.warnings)
    if len(warned) > MOST_WARNINGS:
        yield f"Warnings of {len(warned) - MOST_WARNINGS} more settings are in the records."


def _listed(runs: Sequence[RunResult], key: str) -> str:
    return listed(values_of(runs, key))


def unranked_sentence(runs: Sequence[RunResult]) -> str:
    """Which runs are left out of rankings, and why; empty if there are none."""
    kinds = sorted(Counter(run.status for run in runs if run.status != "finished").items())
    said = [f"{many} {'diverged' if s == 'diverged' else f'did not finish ({s})'}" for s, many in kinds]
    left_out = sum(not run.ranked for run in runs)
    if low := sum(run.status == "finished" and not run.ranked for run in runs):
        said.append(f"{low} ended below half of the best test accuracy")
    them = "it is" if left_out == 1 else "they are"
    return f"Of {count(len(runs), 'run')}, {listed(said)}; {them} left out of rankings." if said else ""


def busy_sentence(records: Records, runs: Sequence[RunResult]) -> str:
    """Other work that made measured times longer; empty if there was none."""
    timed = [run.run.conditions.busy for run in runs if run.run is not None and not run.virtual]
    timed = timed or [m.conditions.get("busy", "") for _, m in records.measurements]
    busy = [said for said in timed if said]
    if not busy:
        return ""
    which = "" if len(busy) == len(timed) else f" during {len(busy)} of {len(timed)} runs"
    if not busy[0].startswith(BUSY):
        return f"Times are longer than usual{which}: {busy[0]}."
    load = busy[0].removeprefix(BUSY).partition(": ")[0]
    return f"The machine was busy with other work{which}{load}: times are longer than on an idle one."


def overhead_words(m: Measurement) -> str:
    """A short run pays for the start of the clock; a long one for its samples."""
    said = overhead_text(m)
    return f"{said[0].upper()}{said[1:]}."


def _of_measurements(found: Sequence[tuple[str, Measurement]]) -> Iterable[str]:
    if len(found) == 1:
        m = found[0][1]
        yield (
            f"{m.name} at batch size {m.batch} on {m.device_name}: {count(m.iterations, 'iteration')}, {m.sampled:,} "
            f"sampled. {overhead_words(m)} Layers and other parts add up to {percent(m.accounted)} of an iteration "
            "without measuring."
        )
    elif found:
        names = dict.fromkeys(f"{m.name} at batch size {m.batch}" for _, m in found)
        yield f"{count(len(found), 'measurement')} of {listed(names)}."


def conditions(records: Records, runs: Sequence[RunResult]) -> Section | None:
    """All values of each condition."""
    told = [asdict(run.run.conditions) for run in runs if run.run is not None]
    for _, m in records.measurements:
        kept = {key: said for key, said in m.conditions.items() if key in ("threads", "precision", "python", "torch")}
        told.append({"device": m.device, "device_name": m.device_name, **kept})
    found = {key: [str(some[key]) for some in told if key in some] for some in told for key in some}
    values = [(_word(key), listed(in_order(said))) for key, said in found.items() if key not in NOT_OF_THE_MACHINE]
    measured = [
        (place, speed.link, 1e6 * speed.latency_s, speed.bandwidth / 1e9)
        for place, speeds in records.links
        for speed in speeds.links
    ]
    columns = ("record", "link", Column("latency", "µs"), Column("bandwidth", "GB/s"))
    blocks = (
        listing("conditions-table", "Machine and versions", ("condition", "value"), values),
        listing("steps", "Kind of step", ("step", "reason", "data", "records"), _steps(records, runs)),
        listing("links", "Links of this machine", columns, measured),
    )
    return section("conditions", "Conditions", blocks=blocks)


def _steps(records: Records, runs: Sequence[RunResult]) -> list[tuple[str, str, str, int]]:
    found: Counter[tuple[str, str, str]] = Counter()
    for made in (run.run for run in runs if run.run is not None):
        placed = (f"{n:,} operations per step on {device}" for device, n in made.placement.items())
        found[made.step.kind, "; ".join((made.step.reason, *placed)), made.data] += 1
    for _, m in records.measurements:
        kind, _, why = m.conditions.get("step", m.step).partition(": ")
        found[kind, why, f"{m.conditions.get('data', '')}, measured".removeprefix(", ")] += 1
    return [(*key, many) for key, many in list(found.items())[:MOST_STEPS]]


def run_table(runs: Sequence[RunResult]) -> Section | None:
    if len(runs) < 2:  # a single run is described above
        return None
    keys = [key for key in differing([run.settings for run in runs]) if key not in NOT_A_COLUMN][:MOST_SETTINGS]
    target, metrics = target_accuracy(runs), {run.metric_name for run in runs if math.isfinite(run.metric_value)}
    metric = f"test {metrics.pop() if len(metrics) == 1 else 'metric'}"
    columns: tuple[str | Column, ...] = (
        "run", "status", "workers", Column("test accuracy", "%"), metric, "test loss",
        Column(f"time to {100 * target:.0f} %", "s"), Column("time", "s"), Column("throughput", "samples/s"), "updates",
        "mean staleness", Column("waiting", "%"), Column("wall-clock time", "s"),
        *map(_word, keys), "place",
    )  # fmt: skip
    rows: list[tuple[Cell, ...]] = [
        (
            run.label, "finished, not ranked" if run.status == "finished" and not run.ranked else run.status,
            run.workers, 100 * run.accuracy, run.metric_value, run.loss, seconds_to_accuracy(run, target),
            run.seconds, run.samples_per_s, run.updates,
            d.ledger.mean_staleness if (d := run.distribution) and d.ledger.staleness else None,
            100 * d.waiting_share if d else None, run.wall_s,
            *(as_number(YES_NO.get(value, value)) for value in (run.settings.get(key, "") for key in keys)), run.place,
        )
        for run in runs
    ]  # fmt: skip
    simulated = "For simulated runs, time and throughput are simulated; wall-clock time is what the simulation took."
    note = simulated if any(run.virtual for run in runs) else ""
    block = TableBlock("runs-table", count(len(runs), "run"), filled(table(columns, rows)), note, of_runs=True)
    return Section("runs", "All runs", blocks=(block,))
