"""A measurement as text: the largest layers, the parts without layers, and how far to trust the figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from paceline.formatting import duration, percent, signed_percent
from paceline.held_objects import shown_name

if TYPE_CHECKING:
    from paceline.measurement.measurement import LayerTime, Measurement

MOST_LAYERS = 40
MIN_SHARE = 5e-4
"""Smaller layers are added up in one row."""
COLUMNS = ("layer", "kind", "forward", "backward", "update", "total", "share", "GFLOP/s", "GB/s")


def text_of(m: Measurement) -> str:
    i = m.iteration_s
    lines = [
        f"{shown_name(m.name)} at batch {m.batch} on {m.device_name} ({m.device}), "
        f"step {m.conditions.get('step', m.step)}",
        f"iteration {ms(i.mean_s)} ms on average (median {ms(i.median_s)}, 10th to 90th percentile {ms(i.p10_s)} to "
        f"{ms(i.p90_s)}), {m.sampled} of {m.iterations} sampled",
        *layer_lines(m, m.layers, i.mean_s),
    ]
    if m.eager_layers:
        lines.append(f"the compiled step runs as one unit; layers of the plain step ({ms(m.eager_s)} ms):")
        lines += aligned([COLUMNS, *_layer_rows(m.eager_layers, m.eager_s)])
    lines.append(f"parts: {parts_text(m)}")
    for seconds, what in (
        (m.hidden_communication_s, "communication hidden behind computing"),
        (m.validation_s, "evaluation in the loop, not part of an iteration, per iteration"),
        (m.epoch_start_s, "start of the loader, not part of an iteration, per epoch"),
    ):
        if seconds:
            lines.append(f"{what}: {ms(seconds)} ms")
    lines += [
        f"accounted {m.accounted:.3f}",
        overhead_text(m),
        f"device peak {m.device_flops / 1e9:.0f} GFLOP/s and {m.device_bytes / 1e9:.1f} GB/s",
        *(f"warning: {sentence}" for sentence in m.warnings),
    ]
    return "\n".join(lines)


def overhead_text(m: Measurement) -> str:
    """What measuring cost. Noise can make it negative."""
    here = f"{duration(m.overhead_s)} ({signed_percent(m.overhead)})" if m.overhead_s > 0 else "nothing measurable"
    hour = signed_percent(m.overhead_hour) if m.overhead_hour > 0 else "nothing measurable"
    return f"measuring added {here} to this run, and would add {hour} to a run of an hour"


def ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3f}"


def parts_text(m: Measurement) -> str:
    whole_s = m.iteration_s.mean_s or 1.0
    return "  ".join(f"{part} {percent(seconds / whole_s)}" for part, seconds in m.parts_s.items() if seconds)


def layer_lines(m: Measurement, layers: Sequence[LayerTime], whole_s: float) -> list[str]:
    """Layers, parts without layers, and the iteration that they add up to."""
    rows = _layer_rows(layers, whole_s)
    for part, seconds in m.parts_without_layers_s().items():
        if abs(seconds) >= MIN_SHARE * whole_s:
            rows.append((f"({part})", "", "", "", "", ms(seconds), percent(seconds / (whole_s or 1.0)), "", ""))
    rows.append(("iteration", "", "", "", "", ms(whole_s), percent(1.0), "", ""))
    note = "times in ms, means of the sampled iterations; *: the update of all layers at once, apportioned by bytes"
    return [*aligned([COLUMNS, *rows]), note]


def _layer_rows(layers: Sequence[LayerTime], whole_s: float) -> list[tuple[str, ...]]:
    whole_s = whole_s or 1.0
    largest = sorted(layers, key=lambda layer: -abs(layer.total_s))[:MOST_LAYERS]
    shown = {layer.name for layer in largest if abs(layer.total_s) >= MIN_SHARE * whole_s}
    rows: list[tuple[str, ...]] = [
        (
            layer.name, layer.kind, ms(layer.forward_s.mean_s), ms(layer.backward_s.mean_s),
            ms(layer.update_s.mean_s) + ("*" if layer.update_apportioned and layer.parameters else ""),
            ms(layer.total_s), percent(layer.total_s / whole_s), f"{layer.achieved_flops / 1e9:.1f}",
            f"{layer.achieved_bytes / 1e9:.1f}",
        )
        for layer in layers if layer.name in shown
    ]  # fmt: skip
    others = [layer for layer in layers if layer.name not in shown and layer.total_s]
    if others:
        sums = [
            sum(seconds)
            for seconds in zip(
                *((layer.forward_s.mean_s, layer.backward_s.mean_s, layer.update_s.mean_s) for layer in others),
                strict=True,
            )
        ]
        total_s = sum(sums)
        name = f"({len(others)} smaller rows)"
        rows.append((name, "", *map(ms, sums), ms(total_s), percent(total_s / whole_s), "", ""))
    return rows


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns of equal width; the first two are text, the others numbers."""
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    return [
        "  ".join(
            cell.ljust(width) if place < 2 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
