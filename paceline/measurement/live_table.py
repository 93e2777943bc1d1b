"""A table in the terminal while a loop trains: parts and largest layers of an iteration, as sampled so far.

It is redrawn after a sampling window, between two iterations, so that drawing it is part of the overhead and of no
iteration.
"""

from __future__ import annotations

from statistics import fmean
from time import perf_counter
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from paceline.formatting import duration, percent
from paceline.measurement.session import Session
from paceline.trace import PARTS

REDRAW_EVERY_S = 0.5
LAYERS, LAST_SAMPLES = 12, 100


class LiveView:
    """What a session has measured so far, for a terminal; made anew after a sampling window, if it is due."""

    def __init__(self, session: Session, name: str) -> None:
        self.session, self.name = session, name
        self._made_s = 0.0
        self._view: Group | None = None
        session.on_window = self.renew_if_due

    def renew_if_due(self) -> bool:
        if perf_counter() - self._made_s < REDRAW_EVERY_S:
            return False
        self._view, self._made_s = live_view(self.session, self.name), perf_counter()
        return True

    def __rich__(self) -> Group:
        return self._view or Group()


class LiveTable:
    """A live display of its own, for a loop that has none."""

    def __init__(self, session: Session, name: str, console: Console | None = None) -> None:
        self.session, self.view = session, LiveView(session, name)
        self._live = Live(self.view, console=console or Console(stderr=True), auto_refresh=False, transient=True)

    def __enter__(self) -> LiveTable:
        self.session.on_window = self.redraw_if_due
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.session.on_window = None
        self._live.stop()

    def redraw_if_due(self) -> None:
        if self.view.renew_if_due():
            self._live.refresh()


def live_view(session: Session, name: str) -> Group:
    samples = session.samples[-LAST_SAMPLES:]
    parts: dict[str, float] = {}
    layers: dict[str, list[float]] = {}
    for sample in samples:
        for (part, row), seconds in sample.spans_s.items():
            parts[part] = parts.get(part, 0.0) + seconds / len(samples)
            if part in ("forward", "backward"):
                layers.setdefault(row, [0.0, 0.0])[part == "backward"] += seconds / len(samples)
    sampled_s = fmean(sample.wall_s for sample in samples) if samples else 0.0
    whole_s = session.untouched_s(default=sampled_s) or 1.0
    shares = "  ".join(f"{part} {percent(parts[part] / whole_s)}" for part in PARTS if part in parts)
    title = f"{name}: iteration {session.number:,}, {duration(whole_s)} each, {len(session.samples)} sampled"
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("layer", "forward ms", "backward ms", "share"):
        table.add_column(column, justify="left" if column == "layer" else "right", no_wrap=True)
    for row, (forward_s, backward_s) in sorted(layers.items(), key=lambda item: -sum(item[1]))[:LAYERS]:
        share = percent((forward_s + backward_s) / whole_s)
        table.add_row(Text(row), f"{1e3 * forward_s:.3f}", f"{1e3 * backward_s:.3f}", share)
    return Group(Text(title), Text(shares), table)
