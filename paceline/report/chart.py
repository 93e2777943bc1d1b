"""A line chart as inline SVG, drawn with the page's own colours so that it follows light and dark."""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 640, 300
LEFT, RIGHT, TOP, BOTTOM = 56, 96, 16, 40


@dataclass(frozen=True)
class Series:
    name: str
    x: list[float]
    y: list[float]


def line_chart(title: str, series: list[Series], x_label: str, unit: str) -> str:
    """An SVG with a title for screen readers, or nothing when no value is finite."""
    points = [(x, y) for s in series for x, y in zip(s.x, s.y, strict=True) if math.isfinite(y)]
    if not points:
        return ""
    x_low, x_high = min(x for x, _ in points), max(x for x, _ in points)
    ticks = nice_ticks(min(y for _, y in points), max(y for _, y in points))
    y_low, y_high = ticks[0], ticks[-1]

    def at(x: float, y: float) -> tuple[float, float]:
        across = (x - x_low) / (x_high - x_low) if x_high > x_low else 0.5
        up = (y - y_low) / (y_high - y_low)
        return LEFT + across * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM)

    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title, quote=True)}">']
    parts += [_grid_line(at(x_low, tick)[1], f"{tick:g}{' ' + unit if unit else ''}") for tick in ticks]
    for x in sorted({x_low, x_high, *_whole_numbers(x_low, x_high)}):
        parts.append(f'<text class="tick" x="{at(x, y_low)[0]:.1f}" y="{HEIGHT - 20}" text-anchor="middle">{x:g}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text class="tick" x="{middle}" y="{HEIGHT - 4}" text-anchor="middle">{escape(x_label)}</text>')
    labels = _label_heights([at(s.x[-1], s.y[-1])[1] if math.isfinite(s.y[-1]) else TOP for s in series])
    for number, (line, height) in enumerate(zip(series, labels, strict=True)):
        where = [at(x, y) for x, y in zip(line.x, line.y, strict=True) if math.isfinite(y)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in where)
        parts.append(f'<polyline class="line line{number}" points="{path}"/>')
        parts += [f'<circle class="dot dot{number}" cx="{x:.1f}" cy="{y:.1f}" r="2.5"/>' for x, y in where[-1:]]
        parts.append(f'<text class="name name{number}" x="{WIDTH - RIGHT + 8}" y="{height + 4:.1f}">{escape(line.name)}</text>')
    return "".join([*parts, "</svg>"])


def _grid_line(y: float, label: str) -> str:
    return (
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<text class="tick" x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>'
    )


def _whole_numbers(low: float, high: float) -> list[float]:
    step = max(1, math.ceil((high - low) / 8))
    return [float(x) for x in range(math.ceil(low), math.floor(high) - step // 2, step)]


def _label_heights(heights: list[float]) -> list[float]:
    """The labels' heights, moved apart where two would overlap."""
    placed: list[float] = []
    for height in heights:
        while any(abs(height - other) < 14 for other in placed):
            height += 14
        placed.append(height)
    return placed


def nice_ticks(low: float, high: float, count: int = 4) -> list[float]:
    """Round numbers that enclose the range."""
    if high <= low:
        low, high = low - 0.5, high + 0.5
    rough = (high - low) / count
    magnitude = 10.0 ** math.floor(math.log10(rough))
    step = next(m * magnitude for m in (1, 2, 2.5, 5, 10) if m * magnitude >= rough)
    start = math.floor(low / step)
    ticks = [start * step]
    while ticks[-1] < high - 1e-9 * step:
        start += 1
        ticks.append(start * step)
    return [round(tick, 10) for tick in ticks]
