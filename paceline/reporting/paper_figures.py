"""The figures of a page as PNG and SVG for a paper: the same tables, drawn by Matplotlib."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from paceline.output_directory import writable
from paceline.reporting.colours import LIGHT, colour_of
from paceline.reporting.figure import Figure, View

WIDTH_IN = 6.4
MOST_NAMES = 12  # a longer legend would be larger than the figure
ONE_IS_ENOUGH = ("timeline", "by-worker")
DASHES = ("-", "--", ":")
FAR = 16  # an axis of points is logarithmic if its largest value is this many times the smallest
Drawing = Callable[[View, Any], None]


def write_figures(figures: Iterable[Figure], directory: Path, argument: str = "figures") -> list[Path]:
    """Writes every view of every figure; for figures of single runs, only the first view."""
    import matplotlib

    matplotlib.use("Agg")
    make_directory(directory, argument)
    with writable(f"`{argument}={str(directory)!r}`"):
        return [path for figure in figures for path in _write_figure(figure, directory)]


def make_directory(directory: Path, argument: str = "figures") -> None:
    with writable(f"`{argument}={str(directory)!r}`"):
        directory.mkdir(parents=True, exist_ok=True)


def _write_figure(figure: Figure, directory: Path) -> list[Path]:
    paths = []
    seen: set[str] = set()
    views = figure.views[:1] if figure.id in ONE_IS_ENOUGH else figure.views
    for view in views:
        word = re.sub(r"[^A-Za-z0-9.]+", "-", view.name).strip("-")[:60].lower() or "view"
        name = figure.id if len(views) == 1 else f"{figure.id}-{word}"
        name = name if name not in seen else f"{name}-{len(seen)}"
        seen.add(name)
        paths += _draw(figure, view, directory / name)
    return paths


def _draw(figure: Figure, view: View, place: Path) -> list[Path]:
    from matplotlib import pyplot

    upright = figure.kind == "lines" or view.options.get("upright", False)
    height = 3.6
    if not upright:
        names = view.table.values(view.options["row" if "row" in view.options else "category"])
        height = 1.2 + 0.22 * min(len(set(names)), int(view.options.get("most", len(names))), 48)
    # Names come from users: a dollar sign does not start a formula.
    settings: dict[Any, Any] = {
        "font.size": 9, "svg.fonttype": "none", "axes.edgecolor": LIGHT["rule"], "text.parse_math": False,
        "svg.hashsalt": "paceline",
    }  # fmt: skip
    with pyplot.rc_context(settings):
        drawn, axes = pyplot.subplots(figsize=(WIDTH_IN, height), layout="constrained")
        DRAWINGS[figure.kind](view, axes)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        title = f"{figure.title}: {view.name}" if view.name else figure.title
        axes.set_title(title, loc="left", fontsize=10)
        axes.grid(axis="y" if upright else "x", color=LIGHT["rule"], linewidth=0.6)
        axes.set_axisbelow(True)
        paths = [place.with_name(f"{place.name}.{ending}") for ending in ("png", "svg")]
        for path in paths:
            drawn.savefig(path, dpi=200, metadata={"Date": None} if path.suffix == ".svg" else None)
        pyplot.close(drawn)
    return paths


def _legend(axes: Any) -> None:
    """Each name once."""
    known: dict[str, Any] = {}
    for handle, name in zip(*axes.get_legend_handles_labels(), strict=True):
        known.setdefault(name, handle)
    if 1 < len(known) <= MOST_NAMES:
        look = {"loc": "outside lower center", "fontsize": 8, "frameon": False}
        axes.figure.legend(known.values(), known.keys(), ncols=min(len(known), 3), **look)


def _draw_lines(view: View, axes: Any) -> None:
    table, o = view.table, view.options
    names, groups = table.values(o["line"]), table.values(o.get("group", o["line"]))
    xs, ys = table.values(o["x"]), table.values(o["y"])
    styles: dict[str, list[int]] = o.get("styles", {})
    places = {group: place for place, group in enumerate(dict.fromkeys(groups))}
    for name in dict.fromkeys(names):
        rows = [i for i, other in enumerate(names) if other == name and xs[i] is not None and ys[i] is not None]
        if not rows:
            continue
        group = groups[rows[0]]
        hue, dash = styles.get(group, [places[group], 1 if group == "training" else places[group] // 8])
        colour = colour_of(group, hue)
        line = [xs[i] for i in rows], [ys[i] for i in rows]
        marker = "." if len(places) <= MOST_NAMES else ""
        axes.plot(*line, DASHES[dash % 3], marker=marker, color=colour, linewidth=1.2, label=group)
        if "low" in o:
            low, high = table.values(o["low"]), table.values(o["high"])
            axes.vlines(line[0], [low[i] for i in rows], [high[i] for i in rows], color=colour, linewidth=1)
        if "ideal" in o:
            ideal = table.values(o["ideal"])
            axes.plot(line[0], [ideal[i] for i in rows], ":", color=LIGHT["soft"], linewidth=1, label="ideal")
    axes.set(xlabel=table.column(o["x"]).title, ylabel=table.column(o["y"]).title)
    if o.get("zero"):
        axes.set_ylim(bottom=0)
    for values, scale in ((xs, axes.set_xscale), (ys, axes.set_yscale)) if o.get("points") else ():
        known = [value for value in values if value is not None]
        if known and 0 < FAR * min(known) < max(known):
            scale("log")
    _legend(axes)


def _draw_bars(view: View, axes: Any) -> None:
    """Bars side by side or stacked; if there are too many, the longest."""
    o, stacked = view.options, "parts" in view.options
    parts = o["parts"] if stacked else o["values"]
    names = [str(name) for name in view.table.values(o["category"])]
    values = [[float(value or 0.0) for value in view.table.values(part)] for part in parts]
    sizes = [sum(column) for column in zip(*values, strict=True)]
    kept = sorted(sorted(range(len(names)), key=lambda i: -sizes[i])[: o.get("most", len(names))])
    names, left = [names[i] for i in kept], [0.0] * len(kept)
    width = 0.7 if stacked else 0.8 / len(parts)
    for place, (part, column) in enumerate(zip(parts, values, strict=True)):
        shown = [column[i] for i in kept]
        look = {"color": colour_of(part, place), "label": part if not stacked or any(shown) else None}
        where = [i if stacked else i - 0.4 + width * (place + 0.5) for i in range(len(names))]
        if o.get("upright"):
            axes.bar(where, shown, width, **look)
        else:
            axes.barh(where, shown, width, left=left, **look)
        left = [a + b for a, b in zip(left, shown, strict=True)] if stacked else left
    if o.get("upright"):
        every = max(1, len(names) // 16)
        axes.set_xticks(range(0, len(names), every), names[::every])
        axes.set(xlabel=o["category"], ylabel=view.table.column(parts[0]).title)
    else:
        _name_rows(axes, names)
        axes.set_xlabel(view.table.column(parts[0]).unit)
    _legend(axes)


def _name_rows(axes: Any, names: list[str]) -> None:
    short = [name if len(name) <= 40 else f"{name[:38]}…" for name in names]
    axes.set_yticks(range(len(names)), short, fontsize=7 if len(names) > 16 else 8)
    axes.invert_yaxis()


def _draw_intervals(view: View, axes: Any) -> None:
    table, o = view.table, view.options
    names = [str(name) for name in table.values(o["category"])]
    value, low, high, other = (table.values(o[key]) for key in ("value", "low", "high", "other"))
    for i in range(len(names)):
        if low[i] is not None and high[i] is not None:
            axes.plot([low[i], high[i]], [i, i], color=colour_of("predicted", 0), alpha=0.35, linewidth=5)
    axes.plot(value, range(len(names)), "o", color=colour_of("predicted", 0), label=o["value"])
    rows = [i for i in range(len(names)) if other[i] is not None]
    if rows:
        axes.plot([other[i] for i in rows], rows, "D", color=colour_of("measured", 1), markersize=5, label=o["other"])
    _name_rows(axes, names)
    axes.set_xlabel(table.column(o["value"]).unit)
    _legend(axes)


def _draw_timeline(view: View, axes: Any) -> None:
    table, o = view.table, view.options
    who, what = table.values(o["row"]), table.values(o["what"])
    start, end = table.values(o["start"]), table.values(o["end"])
    names = list(dict.fromkeys(who))[:48]
    places = {name: i for i, name in enumerate(names)}
    for kind_place, kind in enumerate(dict.fromkeys(what)):
        for name in names:
            spans = [(start[i], end[i] - start[i]) for i in range(len(who)) if who[i] == name and what[i] == kind]
            if spans:
                box = (places[name] - 0.4, 0.8)
                axes.broken_barh(spans, box, facecolors=colour_of(kind, kind_place), linewidth=0)
        axes.plot([], [], "s", color=colour_of(kind, kind_place), label=kind)
    _name_rows(axes, names)
    axes.set_xlabel("s")
    _legend(axes)


DRAWINGS: dict[str, Drawing] = {
    "lines": _draw_lines, "stack": _draw_bars, "bars": _draw_bars, "intervals": _draw_intervals,
    "timeline": _draw_timeline,
}  # fmt: skip
