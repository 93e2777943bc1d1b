"""Where the time goes: parts of an iteration, forward, backward and update of each layer, and parts of a whole run."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from paceline.formatting import duration, percent
from paceline.measurement.advice import advice, parts_are_known
from paceline.measurement.measurement import LayerTime, Measurement
from paceline.reporting.figure import Cell, Column, Figure, Section, Table, View, figure, section, table
from paceline.reporting.sections.setting import BUSY, overhead_words
from paceline.results.noise import LEAST_GAIN
from paceline.results.run_result import RunResult
from paceline.trace import Trace

MOST_MEASUREMENTS = 24
LAYER_BARS = {"category": "layer", "parts": ["forward", "backward", "update"], "most": 30}
MOST_LINES = 16  # per view: eight colours, solid and dashed
NAMES = {
    "load": "loading data", "prepare": "preparing", "start": "starting processes", "train": "training",
    "validate": "validating", "checkpoint": "writing checkpoints",
}  # fmt: skip
PART_NAMES = {
    "load": "waiting for data", "copy": "copying", "forward": "forward pass", "backward": "backward pass",
    "update": "optimizer update", "communicate": "communication", "idle": "idle time", "loop": "the training loop",
    "scale": "gradient scaling", "clip": "gradient clipping",
}  # fmt: skip
REST = "unattributed"
MOST_RUNS = 40


def where_the_time_goes(measured: Sequence[tuple[str, Measurement]], runs: Sequence[RunResult]) -> Section | None:
    shown = measured[:MOST_MEASUREMENTS]
    figures = (*measurement_figures(shown), wall_clock_figure(runs))
    sentences = [said for name, m in measured[:1] for said in (iteration_sentence(name, m), uneven_sentence(m))]
    warnings = (warning for _, m in measured[:1] for warning in m.warnings)
    sentences += [
        f"Warning: {warning}." for warning in warnings if not warning.startswith(BUSY)
    ]  # shown with the answer
    points: list[str] = []
    with suppress(KeyError, ZeroDivisionError):  # a custom measurement need not have every part
        points = [advised for _, m in measured[:1] if parts_are_known(m) for advised in advice(m)]
    if len(measured) > MOST_MEASUREMENTS:
        sentences.append(f"The first {MOST_MEASUREMENTS} of {len(measured)} measurements are shown.")
    return section("time", "Where the time goes", sentences, points, figures)


def measurement_figures(measured: Sequence[tuple[str, Measurement]]) -> list[Figure]:
    made = (parts_figure(measured), layers_figure(measured), by_iteration(measured), with_and_without(measured))
    return [figure for figure in made if figure is not None]


def iteration_sentence(name: str, m: Measurement) -> str:
    total = m.iteration_s.mean_s
    at = "" if f"batch {m.batch}" in name else f" at batch size {m.batch}"
    where = f"An iteration of {name}{at} takes {duration(m.iteration_s.median_s)}"
    if not total > 0:
        return f"{where}."
    if not parts_are_known(m):
        return f"{where}, but its measured parts add up to {percent(m.accounted, 0)}: measure again."
    part = max(m.parts_s, key=lambda p: m.parts_s[p])
    total = sum(max(0.0, seconds) for seconds in m.parts_s.values()) or total  # may exceed the mean on a busy machine
    said = f"{where}: {percent(m.parts_s[part] / total, 0)} {PART_NAMES.get(part, part)}"
    layers = [layer for layer in m.layers if layer.kind not in ("outside", "whole", "recompute")]
    if len(layers) > 1:
        largest = max(layers, key=lambda layer: layer.total_s)
        said += f"; the slowest layer, {largest.name}, takes {percent(largest.total_s / total, 0)}"
    return f"{said}."


def uneven_sentence(m: Measurement) -> str:
    """Says that some iterations took much longer; their parts then add up to more than the median iteration."""
    mean_s, usual_s = m.iteration_s.mean_s, m.iteration_s.median_s
    if not usual_s > 0 or mean_s < (1 + LEAST_GAIN) * usual_s:
        return ""
    return f"Some iterations took much longer: the median is {duration(usual_s)}, the mean {duration(mean_s)}."


def parts_figure(measured: Sequence[tuple[str, Measurement]]) -> Figure | None:
    parts = (item for _, m in measured for item in m.parts_s.items())
    names = dict.fromkeys(part for part, s in parts if s > 0 or (part == "unattributed" and s < 0))
    if not names:
        return None
    rows: list[Sequence[Cell]] = [
        (name, *(m.parts_s.get(part, 0.0) for part in names), m.iteration_s.mean_s) for name, m in measured
    ]
    seconds = (Column(name, "s") for name in (*names, "iteration without measuring"))
    note = "Means of the sampled iterations. Unattributed: the mean of the other iterations minus the sum of the parts."
    view = View("", table(("measurement", *seconds), rows), {"category": "measurement", "parts": list(names)})
    return Figure("parts", "Parts of an iteration", "stack", (view,), note=note, wide=True)


def layers_figure(measured: Sequence[tuple[str, Measurement]]) -> Figure | None:
    views = []
    for name, m in measured:
        if m.layers:
            views.append(View(name, _layer_table(m.layers), LAYER_BARS))
        if m.eager_layers:
            views.append(View(f"{name}, eager step", _layer_table(m.eager_layers), LAYER_BARS))
    says = next((iteration_sentence(name, m) for name, m in measured if m.layers or m.eager_layers), "")
    note = "In network order; means of the sampled iterations, which add up to the parts."
    if any(layer.update_apportioned and layer.parameters for _, m in measured for layer in m.layers):
        note += " The optimizer updates all layers at once; its time is divided in proportion to their bytes."
    return figure("layers", "Time by layer", "stack", views, says, note=note, choice="measurement", wide=True)


def by_iteration(measured: Sequence[tuple[str, Measurement]]) -> Figure | None:
    """Each layer with parameters in each sampled iteration; many layers in several views."""
    views = []
    for name, m in measured:
        kept = [layer.name for layer in m.layers if layer.parameters] or [layer.name for layer in m.layers]
        for first in range(0, len(kept), MOST_LINES):
            some = kept[first : first + MOST_LINES]
            which = f", layers {first + 1} to {first + len(some)}" if len(kept) > MOST_LINES else ""
            views += _iteration_views(f"{name}{which}", m, some)
    note = "Sampled iterations as measured; layers with parameters, if there are any."
    title = "Layer times by iteration"
    return figure("layers-by-iteration", title, "lines", views, note=note, choice="measurement", wide=True)


def _iteration_views(name: str, m: Measurement, layers: Sequence[str]) -> list[View]:
    place = {layer: at for at, layer in enumerate(layers)}
    samples = sorted((s for s in m.samples if s.layer in place), key=lambda s: (place[s.layer], s.number))
    if len({s.number for s in samples}) < 2:
        return []
    columns = [Column("layer"), Column("iteration"), *(Column(part, "s") for part in ("forward", "backward", "update"))]
    data = table(columns, [(s.layer, s.number, s.forward_s, s.backward_s, s.update_s) for s in samples])
    options = {"line": "layer", "x": "iteration", "zero": True}
    return [View(f"{name}, {part}", data, {**options, "y": part}) for part in ("forward", "backward")]


def with_and_without(measured: Sequence[tuple[str, Measurement]]) -> Figure | None:
    """Every recorded iteration, sampled or not."""
    views = []
    for name, m in measured:
        rows = [("sampled" if k.sampled else "not sampled", k.number, k.seconds) for k in m.kept]
        if len({row[0] for row in rows}) == 2:
            data = table(("iterations", Column("iteration"), Column("time", "s")), sorted(rows))
            options = {"line": "iterations", "x": "iteration", "y": "time", "zero": True}
            views.append(View(name, data, options))
    says = overhead_words(measured[0][1]) if measured else ""
    title = "Iteration time with and without measuring"
    return figure("sampled-iterations", title, "lines", views, says, note=says, choice="measurement", wide=True)


def _layer_table(layers: Sequence[LayerTime]) -> Table:
    total = sum(layer.total_s for layer in layers) or 1.0
    columns = (
        "layer", "kind", Column("forward", "s"), Column("backward", "s"), Column("update", "s"), Column("share", "%"),
        "GFLOP/s", "GB/s", "parameters",
    )  # fmt: skip
    return table(
        columns,
        [
            (
                layer.name, layer.kind, layer.forward_s.mean_s, layer.backward_s.mean_s, layer.update_s.mean_s,
                100 * layer.total_s / total, layer.achieved_flops / 1e9, layer.achieved_bytes / 1e9, layer.parameters,
            )
            for layer in layers
        ],
    )  # fmt: skip


def time_parts(trace: Trace) -> dict[str, float]:
    """Seconds of the main process by activity, and the rest that no span covers."""
    spans = [span for span in trace.spans if span.who == "main"]  # spans of workers overlap
    total = max((span.end_s for span in spans), default=0.0)
    if not total > 0:
        return {}
    seconds = dict.fromkeys((span.part for span in spans), 0.0)
    training = [span for span in spans if span.part == "train"]
    for span in spans:
        seconds[span.part] += span.duration_s
        if span.part == "checkpoint" and any(t.start_s <= span.start_s <= t.end_s for t in training):
            seconds["train"] -= span.duration_s
    rest = total - sum(seconds.values())
    return {**{NAMES.get(what, what): value for what, value in seconds.items()}, REST: max(0.0, rest)}


def wall_clock_figure(runs: Sequence[RunResult]) -> Figure | None:
    found = [(run, parts) for run in runs if not run.virtual and (parts := time_parts(run.trace))]
    if not found:
        return None
    there = dict.fromkeys(name for _, parts in found for name in parts if name != REST)
    names = [*sorted(there, key=[*NAMES.values(), *there].index), REST]
    rows: list[Sequence[Cell]] = [
        (run.label, *(parts.get(name, 0.0) for name in names)) for run, parts in found[:MOST_RUNS]
    ]
    data = table(("run", *(Column(name, "s") for name in names)), rows)
    notes = [f"The first {MOST_RUNS} of {len(found)} runs."] if len(found) > MOST_RUNS else []
    if any(run.run is not None and run.run.resumed for run, _ in found):
        notes.append("For a resumed run, the time since it was last resumed.")
    view = View("", data, {"category": "run", "parts": names})
    title = f"Wall-clock time of {'the' if len(found) == 1 else 'each'} run"
    return Figure("wall-clock", title, "stack", (view,), note=" ".join(notes), wide=True)
