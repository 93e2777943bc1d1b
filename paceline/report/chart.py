"""A line chart as inline SVG, drawn with the page's own colours so that it follows light and dark."""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape

# Small enough that its text keeps a readable size on a phone, where the whole drawing shrinks.
WIDTH, HEIGHT = 440, 250
LEFT, RIGHT, TOP, BOTTOM = 50, 64, 12, 40
LABEL_HEIGHT = 14


@dataclass(frozen=True)
class Series:
    name: str
    x: list[float]
    y: list[float]

    def points(self) -> list[tuple[float, float]]:
        """Those that can be drawn."""
        return [(x, y) for x, y in zip(self.x, self.y, strict=True) if math.isfinite(y)]


def line_chart(title: str, series: list[Series], x_label: str, unit: str) -> str:
    """An SVG with a title for screen readers, or nothing when no value is finite."""
    points = [point for s in series for point in s.points()]
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
    for x in whole_ticks(x_low, x_high):
        parts.append(_text("tick", at(x, y_low)[0], HEIGHT - 22, f"{x:g}", "middle"))
    parts.append(_text("tick", (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 5, x_label, "middle"))
    lines = {number: [at(x, y) for x, y in s.points()] for number, s in enumerate(series) if s.points()}
    heights = label_heights([line[-1][1] for line in lines.values()], HEIGHT - BOTTOM)
    for (number, line), height in zip(lines.items(), heights, strict=True):
        path, (x, y) = " ".join(f"{x:.1f},{y:.1f}" for x, y in line), line[-1]
        parts.append(f'<polyline class="line line{number}" points="{path}"/>')
        parts.append(f'<circle class="dot dot{number}" cx="{x:.1f}" cy="{y:.1f}" r="2.5"/>')
        parts.append(_text(f"name name{number}", WIDTH - RIGHT + 8, height + 4, series[number].name, "start"))
    return "".join([*parts, "</svg>"])


def _text(kind: str, x: float, y: float, text: str, anchor: str) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _grid_line(y: float, label: str) -> str:
    line = f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
    return line + _text("tick", LEFT - 6, y + 4, label, "end")


def whole_ticks(low: float, high: float) -> list[float]:
    """The two ends, and round whole numbers between them that keep their distance from the ends."""
    rough = max(1.0, (high - low) / 6)
    magnitude = 10 ** math.floor(math.log10(rough))
    step = next(m * magnitude for m in (1, 2, 5, 10) if m * magnitude >= rough)
    whole = range(math.ceil(low / step) * step, math.floor(high) + 1, step)
    return sorted({low, *(float(x) for x in whole if min(x - low, high - x) >= step / 2), high})


def label_heights(heights: list[float], lowest: float) -> list[float]:
    """The labels' heights, moved apart where two would overlap; none ends up below `lowest`."""
    placed = [0.0] * len(heights)
    order = sorted(range(len(heights)), key=lambda number: heights[number])
    highest = -math.inf
    for number in order:
        placed[number] = max(heights[number], highest)
        highest = placed[number] + LABEL_HEIGHT
    for number in reversed(order):
        placed[number] = min(placed[number], lowest)
        lowest = placed[number] - LABEL_HEIGHT
    return placed


def nice_ticks(low: float, high: float, count: int = 4) -> list[float]:
    """Round numbers that enclose the range; a single value is shown with the way from 0 to it."""
    if high - low <= 1e-12 * max(abs(low), abs(high)):
        low, high = min(low, 0.0), max(high, 0.0)
    if high - low < 1e-300:
        high = low + 1.0
    rough = (high - low) / count
    power = math.floor(math.log10(rough))
    step = next(m * 10.0**power for m in (1, 2, 2.5, 5, 10) if m * 10.0**power >= rough)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(number * step, 2 - power) for number in range(first, last + 1)]
