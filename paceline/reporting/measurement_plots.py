"""Plots of a measurement, as PNG and SVG: layers over the iterations, forward beside backward, parts as one bar."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from paceline.measurement.measurement import LayerTime, Measurement

COLOURS = {
    "load": "#8a94a3", "copy": "#b58900", "forward": "#1f6feb", "backward": "#c2410c",
    "update": "#2e8b57", "communicate": "#7c5cd6", "idle": "#d9dfe7", "other": "#5a6675",
}  # fmt: skip
MOST_LAYERS = 20


def write_plots(m: Measurement, directory: Path) -> list[Path]:
    drawings: dict[str, Callable[[Measurement, Any], None]] = {
        "layers-by-iteration": draw_by_iteration,
        "forward-and-backward": draw_forward_and_backward,
        "parts": draw_parts,
        "with-and-without": draw_with_and_without,
    }
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    paths = []
    for name, draw in drawings.items():
        height = 2.6 if name == "parts" else 4.5
        figure, axes = pyplot.subplots(figsize=(9, height), layout="constrained")
        draw(m, axes)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        for ending in ("png", "svg"):
            path = directory / f"{name}.{ending}"
            figure.savefig(path, dpi=130)
            paths.append(path)
        pyplot.close(figure)
    return paths


def largest_layers(m: Measurement, most: int) -> list[LayerTime]:
    """The layers that take most, in the network's order."""
    chosen = {layer.name for layer in sorted(m.layers, key=lambda layer: -layer.total_s)[:most]}
    return [layer for layer in m.layers if layer.name in chosen]


def draw_by_iteration(m: Measurement, axes: Any) -> None:
    for layer in largest_layers(m, 8):
        rows = [s for s in m.samples if s.layer == layer.name]
        seconds = [1e3 * (s.forward_s + s.backward_s) for s in rows]
        axes.plot([s.number for s in rows], seconds, marker=".", linewidth=1, label=layer.name)
    axes.set(
        title=f"Layer time by iteration, {m.name} at batch {m.batch} on {m.device}", xlabel="iteration", ylabel="ms"
    )
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=8, ncols=2)


def draw_forward_and_backward(m: Measurement, axes: Any) -> None:
    layers = largest_layers(m, MOST_LAYERS)[::-1]
    places = range(len(layers))
    for offset, part, spread in (
        (0.2, "forward", [layer.forward_s for layer in layers]),
        (-0.2, "backward", [layer.backward_s for layer in layers]),
    ):
        middle = [1e3 * s.median_s for s in spread]
        low = [1e3 * max(0.0, s.median_s - s.p10_s) for s in spread]
        high = [1e3 * max(0.0, s.p90_s - s.median_s) for s in spread]
        axes.barh(
            [p + offset for p in places],
            middle,
            0.38,
            xerr=(low, high),
            color=COLOURS[part],
            label=part,
            error_kw={"elinewidth": 0.8},
        )
    axes.set_yticks(list(places), [layer.name for layer in layers], fontsize=8)
    axes.set(title=f"Forward and backward by layer, {m.name} at batch {m.batch} (median, p10 to p90)", xlabel="ms")
    axes.legend()


def draw_parts(m: Measurement, axes: Any) -> None:
    left = 0.0
    for part, seconds in m.parts_s.items():
        if seconds <= 0:
            continue
        axes.barh(
            [0],
            [1e3 * seconds],
            left=[1e3 * left],
            color=COLOURS[part],
            label=f"{part} {seconds / sum(m.parts_s.values()):.1%}",
        )
        left += seconds
    axes.axvline(1e3 * m.iteration_s.median_s, color="black", linewidth=1, linestyle="--", label="untouched iteration")
    axes.set_yticks([])
    axes.set(title=f"Parts of an iteration, {m.name} at batch {m.batch}", xlabel="ms")
    axes.figure.legend(fontsize=8, ncols=5, loc="outside lower center")


def draw_with_and_without(m: Measurement, axes: Any) -> None:
    for sampled, label, colour in ((False, "untouched", "#1f6feb"), (True, "with the clock's marks", "#c2410c")):
        rows = [k for k in m.kept if k.sampled == sampled]
        axes.scatter(
            [k.number for k in rows],
            [1e3 * k.seconds for k in rows],
            s=6 if not sampled else 14,
            color=colour,
            label=label,
        )
    axes.set(
        title=f"Iterations with and without measuring: {m.overhead:+.1%} on the whole run",
        xlabel="iteration",
        ylabel="ms",
    )
    top = sorted(k.seconds for k in m.kept)[int(0.98 * (len(m.kept) - 1))] if m.kept else 1.0
    axes.set_ylim(0, 1.3e3 * top)
    axes.legend()
