"""Draws what a run learned and saves the figure in the run's directory, where pages find it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from paceline.networks.learned import Curves, Heatmap, ImageGrid, Panel, Scatter
from paceline.output_file import replacing
from paceline.reporting.colours import LIGHT, LINES
from paceline.training.learned import learned_by
from paceline.training.run import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawn

FILE = "learned.png"
PANEL_IN = 4.2
WIDEST_IN = 11.0
CELL_IN = 0.42  # width of an image in a grid


def draw_panels(panels: Sequence[Panel]) -> Drawn:
    """Side by side, in rows that fit a page."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure as Drawn

    rows = _in_rows(panels)
    width = max(sum(_size_in(panel)[0] for panel in row) for row in rows)
    heights = [max(_size_in(panel)[1] for panel in row) for row in rows]
    # Names come from users: a dollar sign does not start a formula.
    with rc_context({"font.size": 8, "axes.edgecolor": LIGHT["rule"], "text.parse_math": False}):
        drawn = Drawn(figsize=(width, sum(heights)), layout="constrained")
        for line, row in zip(drawn.subfigures(len(rows), 1, height_ratios=heights, squeeze=False), rows, strict=True):
            widths = [_size_in(panel)[0] for panel in row]
            rest = width - sum(widths)
            ratios = [*widths, rest] if rest > 0.1 else widths
            boxes = line[0].subfigures(1, len(ratios), width_ratios=ratios, squeeze=False)[0]
            for box, panel in zip(boxes, row, strict=False):  # the last may be empty
                _DRAWINGS[type(panel)](box, panel)
    return drawn


def _in_rows(panels: Sequence[Panel]) -> list[list[Panel]]:
    rows: list[list[Panel]] = [[]]
    for panel in panels:
        if rows[-1] and sum(_size_in(each)[0] for each in [*rows[-1], panel]) > WIDEST_IN:
            rows.append([])
        rows[-1].append(panel)
    return rows


def _size_in(panel: Panel) -> tuple[float, float]:
    if not isinstance(panel, ImageGrid):
        return PANEL_IN, PANEL_IN - 0.4
    rows, columns, _, height, width = panel.images.shape
    names = 0.07 * max(map(len, panel.rows), default=0)
    return columns * CELL_IN + 0.3 + names, rows * CELL_IN * height / width + 0.4 + 0.2 * bool(panel.columns)


def _draw_images(box: Any, panel: ImageGrid) -> None:
    """All images as one, with gaps between them."""
    images = panel.images.detach().float().cpu().numpy()
    low, high = (0.0, 1.0) if images.min() >= -0.5 and images.max() <= 1.5 else (images.min(), images.max())
    images = np.clip((images - low) / max(high - low, 1e-9), 0.0, 1.0)
    rows, columns, channels, height, width = images.shape
    gap = max(1, round(width / 14))
    padded = np.pad(images, ((0, 0), (0, 0), (0, 0), (0, gap), (0, gap)), constant_values=1.0)
    whole = padded.transpose(0, 3, 1, 4, 2).reshape(rows * (height + gap), columns * (width + gap), channels)
    axes = box.subplots()
    axes.imshow(whole[..., 0] if channels != 3 else whole, cmap="gray", vmin=0, vmax=1)
    axes.set_title(panel.title, fontsize=9)
    axes.set_xticks([(width + gap) * (place + 0.5) for place in range(len(panel.columns))], panel.columns)
    axes.set_yticks([(height + gap) * (place + 0.5) for place in range(len(panel.rows))], panel.rows)
    axes.tick_params(length=0, labeltop=True, labelbottom=False)
    axes.spines[:].set_visible(False)


def _draw_scatter(box: Any, panel: Scatter) -> None:
    points, labels = panel.points.detach().float().cpu().numpy(), panel.labels.cpu().numpy()
    axes = _plain_axes(box, panel)
    for place, label in enumerate(np.unique(labels)):
        some = points[labels == label]
        colour = LIGHT[f"c{place % LINES}"]
        axes.scatter(some[:, 0], some[:, 1], s=6, color=colour, marker="ox^"[place // LINES % 3], label=str(label))
    axes.legend(fontsize=7, ncols=2, frameon=False, markerscale=2, handletextpad=0.1)


def _draw_curves(box: Any, panel: Curves) -> None:
    axes = _plain_axes(box, panel)
    for place, (name, line) in enumerate(panel.lines.items()):
        xs, ys = line.detach().float().cpu().unbind(1)
        axes.plot(xs.numpy(), ys.numpy(), color=LIGHT[f"c{place % LINES}"], linewidth=1.2, label=name)
    axes.legend(fontsize=7, frameon=False)


def _draw_heatmap(box: Any, panel: Heatmap) -> None:
    axes = _plain_axes(box, panel)
    drawn = axes.imshow(panel.values.detach().float().cpu().numpy(), cmap="Blues", aspect="auto")
    if panel.columns:
        axes.set_xticks(range(len(panel.columns)), panel.columns)
    if panel.rows:
        axes.set_yticks(range(len(panel.rows)), panel.rows)
    box.colorbar(drawn, ax=axes, shrink=0.8)


def _plain_axes(box: Any, panel: Scatter | Curves | Heatmap) -> Any:
    axes = box.subplots()
    axes.set(xlabel=panel.x, ylabel=panel.y)
    axes.set_title(panel.title, fontsize=9)
    return axes


_DRAWINGS: dict[type, Any] = {
    ImageGrid: _draw_images, Scatter: _draw_scatter, Curves: _draw_curves, Heatmap: _draw_heatmap,
}  # fmt: skip


def write_learned(run: Run, directory: Path, cache: Path | None = None) -> None:
    """Saves the figure as a PNG, if the network has one and training finished."""
    if run.has_figure and run.status == "finished":
        drawn = draw_panels(learned_by(directory, {}, cache))
        with replacing(directory / FILE) as file:
            drawn.savefig(file, format="png", dpi=150)
