"""Settings of the runs, and the conditions they ran under: machine, versions, links."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields

from paceline.formatting import as_number, count, duration, listed, percent, signed_percent
from paceline.measurement.measurement import Measurement
from paceline.reporting.figure import Column, Section, TableBlock, table
from paceline.results.labels import differing
from paceline.results.records import Records
from paceline.results.run_result import LOCAL, ONE_PROCESS, SIMULATED, TIMED, RunResult, values_of

MOST_SETS = 6
MOST_STEPS = 30
MOST_WARNINGS = 10
BUSY = "this machine is busy"
NOT_OF_THE_MACHINE = ("busy", "made_in")
"""Conditions that are said elsewhere, or to nobody: no page tells where on a machine something lies."""
IN_SECONDS = ("compute_time", "server_time", "network_time", "latency", "busy_timeout", "timeout")
NOT_A_SETTING = ("driver", "processor", "PyTorch", "Paceline", "step")


def what_was_run(records: Records, runs: Sequence[RunResult]) -> Section | None:
    sentences = [*_of_runs(runs), *_of_measurements(records.measurements)]
    if records.failed:
        sentences.append(f"{count(len(records.failed), 'run')} failed.")
    if not sentences:
        return None
    blocks: list[TableBlock] = []
    if runs:
        unequal = [key for key in differing([run.settings for run in runs]) if key not in NOT_A_SETTING]
        shared = {k: v for k, v in runs[0].settings.items() if k not in (*unequal, *NOT_A_SETTING)}
        if unequal:
            rows = [(_word(key), _values(runs, key)) for key in unequal]
            blocks.append(TableBlock("unequal", "Settings that differ", table(("setting", "values"), rows)))
        rows = [(_word(key), _said(key, value)) for key, value in shared.items()]
        title = "Settings that all runs share" if len(runs) > 1 else "All settings"
        blocks.append(TableBlock("settings", title, table(("setting", "value"), rows), folded=True))
    if records.evaluations:
        columns = ("record", "network", "data", "test samples", Column("accuracy", "%"), Column("loss"))
        rows_of = [
            (place, e.workload.network, e.data, e.samples, 100 * e.accuracy, e.loss) for place, e in records.evaluations
        ]
        blocks.append(TableBlock("evaluations", "Evaluations", table(columns, rows_of)))
    if records.failed:
        columns_of = ("run", "error", "place")
        failed = [(f.label, f.error, place) for place, f in records.failed]
        blocks.append(TableBlock("failed", "Failed runs", table(columns_of, failed)))
    return Section("what", "Runs and settings", tuple(sentences), blocks=tuple(blocks))


def _values(runs: Sequence[RunResult], key: str) -> str:
    """A strategy's setting is known for the runs that have it, and only where it is not the default."""
    said = listed((_said(key, value) for value in values_of(runs, key)), 20)
    return said if all(key in run.settings for run in runs) else f"{said}; not set in every run"


def _word(key: str) -> str:
    return key.replace("_", " ")


def _said(key: str, value: str) -> str:
    """A truth value in words, seconds and bytes/s with their units."""
    amount = as_number(value)
    if isinstance(amount, int | float) and key in IN_SECONDS:
        return duration(amount)
    if isinstance(amount, int | float) and key == "bandwidth":
        return f"{amount / 1e9:g} GB/s"
    return {"True": "yes", "False": "no"}.get(value, value)


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
        what = "simulation" if driver == TIMED else "run"
        said = (
            f"{count(len(some), what)} of {listed(values_of(some, 'network'))} on {listed(values_of(some, 'data'))}, "
        )
        said += words
        if driver != ONE_PROCESS:
            workers = values_of(some, "workers")
            plural = "s" * (workers != ["1"])
            said += f" with {listed(values_of(some, 'strategy'))} and {listed(workers)} worker{plural}"
        if driver != TIMED:
            epochs, batches = values_of(some, "epochs"), listed(values_of(some, "batch"))
            said += f"; {listed(epochs)} epoch{'s' * (epochs != ['1'])} at batch size {batches}"
            said += f" with {listed(values_of(some, 'optimizer'))}"
        seeds = values_of(some, "seed")
        if len(seeds) > 1:
            said += f"; {len(seeds)} seeds"
        yield f"{said}."
    if said := unranked_sentence(runs):
        yield said
    warned = [(run.label or run.place, warning) for run in runs if run.run for warning in run.run.warnings]
    for label, warning in warned[:MOST_WARNINGS]:
        yield f"Warning: {label + ': ' if len(runs) > 1 else ''}{warning}."
    if len(warned) > MOST_WARNINGS:
        yield f"{len(warned) - MOST_WARNINGS} more warnings are in the records."


def unranked_sentence(runs: Sequence[RunResult]) -> str:
    """Which runs are left out of rankings, and why; empty if there are none."""
    kinds = {status: sum(run.status == status for run in runs) for status in sorted({run.status for run in runs})}
    said = [
        f"{many} {'diverged' if s == 'diverged' else f'did not finish ({s})'}"
        for s, many in kinds.items()
        if s != "finished"
    ]
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


def _of_measurements(found: Sequence[tuple[str, Measurement]]) -> Iterable[str]:
    if len(found) == 1:
        m = found[0][1]
        yield (
            f"{m.name} at batch size {m.batch} on {m.device_name}: {count(m.iterations, 'iteration')}, {m.sampled:,} "
            f"sampled. The overhead of measuring is {signed_percent(m.overhead)}; layers and other parts add up to "
            f"{percent(m.accounted)} of an iteration without measuring."
        )
    elif found:
        names = dict.fromkeys(f"{m.name} at batch size {m.batch}" for _, m in found)
        yield f"{count(len(found), 'measurement')} of {listed(names)}."


def conditions(records: Records, runs: Sequence[RunResult]) -> Section | None:
    """One column for each set of conditions."""
    sets: dict[tuple[tuple[str, str], ...], int] = {}
    for run in runs:
        if run.run is not None:
            c = run.run.conditions
            _count(sets, {f.name: str(getattr(c, f.name)) for f in fields(c) if f.name not in NOT_OF_THE_MACHINE})
    for _, m in records.measurements:
        kept = ("threads", "precision", "python", "torch")
        told = {key: m.conditions[key] for key in kept if key in m.conditions}
        _count(sets, {"device": m.device, "device_name": m.device_name, **told})
    blocks = []
    if sets:
        shown = sorted(sets.items(), key=lambda entry: -entry[1])[:MOST_SETS]
        keys = list(dict.fromkeys(key for conditions, _ in shown for key, _ in conditions))
        columns = ["condition", *(f"{n} of {sum(sets.values())}" for _, n in shown)]
        if len(shown) == 1:
            columns = ["condition", "value"]
        rows = [(_word(key), *(dict(found).get(key, "") for found, _ in shown)) for key in keys]
        more = f"{MOST_SETS} of {len(sets)} sets of conditions." if len(sets) > MOST_SETS else ""
        blocks.append(TableBlock("conditions-table", "Machine and versions", table(columns, rows), more))
    if steps := _steps(records, runs):
        blocks.append(TableBlock("steps", "Kind of step", table(("step", "reason", "data", "records"), steps)))
    if records.links:
        rows_of = [
            (place, speed.link, 1e6 * speed.latency_s, speed.bandwidth / 1e9)
            for place, found_links in records.links
            for speed in found_links.links
        ]
        columns_of = ("record", "link", Column("latency", "µs"), Column("bandwidth", "GB/s"))
        blocks.append(TableBlock("links", "Links of this machine", table(columns_of, rows_of)))
    return Section("conditions", "Conditions", blocks=tuple(blocks)) if blocks else None


def _count(sets: dict[tuple[tuple[str, str], ...], int], found: dict[str, str]) -> None:
    """A record that knows less counts with those that it does not contradict."""
    for known in sets:
        conditions = dict(known)
        if all(conditions.get(key, value) == value for key, value in found.items()):
            sets[known] += 1
            return
    sets[tuple(found.items())] = 1


def _steps(records: Records, runs: Sequence[RunResult]) -> list[tuple[str, str, str, int]]:
    found: dict[tuple[str, str, str], int] = {}
    for run in runs:
        if run.run is not None:
            placed = "; ".join(f"{n:,} operations per step on {device}" for device, n in run.run.placement.items())
            why = f"{run.run.step.reason}{'; ' + placed if placed else ''}"
            key = (run.run.step.kind, why, run.run.data)
            found[key] = found.get(key, 0) + 1
    for _, m in records.measurements:
        kind, _, why = m.conditions.get("step", m.step).partition(": ")
        key = (kind, why, f"{m.conditions.get('data', '')}, measured".removeprefix(", "))
        found[key] = found.get(key, 0) + 1
    return [(*key, many) for key, many in list(found.items())[:MOST_STEPS]]
