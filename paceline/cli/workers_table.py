"""A table in the terminal while several workers train: what each of them did in the last seconds."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Sequence

from rich.console import Group
from rich.table import Table
from rich.text import Text

from paceline.formatting import percent
from paceline.strategy.distribution import WorkerRecord
from paceline.training.watcher import WorkersProgress

REDRAW_EVERY_S = 0.5
OVER_S = 5.0  # rates and shares are averaged over this time
ROWS = 16


class WorkersTable:
    """Redrawn from the progress of a run, at most every REDRAW_EVERY_S."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._history: deque[tuple[float, Sequence[WorkerRecord]]] = deque()
        self._view: Table | None = None

    def update(self, progress: WorkersProgress) -> None:
        now_s = self.clock()
        if progress.records is None or (self._history and now_s - self._history[-1][0] < REDRAW_EVERY_S):
            return
        self._history.append((now_s, progress.records()))
        while len(self._history) > 2 and now_s - self._history[1][0] >= OVER_S:
            self._history.popleft()
        if len(self._history) > 1:
            self._view = self._table()

    def _table(self) -> Table:
        (first_s, first), (last_s, last) = self._history[0], self._history[-1]
        table = Table(box=None, pad_edge=False, caption_justify="left")
        for name in ("worker", "batches/s", "computing", "exchanging", "waiting", "mean loss", "starts"):
            table.add_column(name, justify="right")
        # The slowest are shown, for they are what one looks for.
        rows = sorted(zip(last, first, strict=True), key=lambda pair: pair[0].batches - pair[1].batches)[:ROWS]
        for now, before in sorted(rows, key=lambda pair: pair[0].worker):
            table.add_row(*_cells(now, before, last_s - first_s))
        if len(last) > ROWS:
            table.caption = f"the slowest {ROWS} of {len(last)} workers"
        return table

    def __rich__(self) -> Group:
        return Group(self._view) if self._view is not None else Group(Text(""))


def _cells(now: WorkerRecord, before: WorkerRecord, seconds: float) -> list[str]:
    spent = [
        max(0.0, now.computing_s - before.computing_s),
        max(0.0, now.communicating_s - before.communicating_s),
        max(0.0, now.waiting_s - before.waiting_s),
    ]
    shares = [percent(part / sum(spent), 0) if sum(spent) else "–" for part in spent]
    rate = max(0, now.batches - before.batches) / seconds
    return [
        str(now.worker),
        f"{rate:,.4g}",
        *shares,
        "–" if math.isnan(now.loss) else f"{now.loss:.4f}",
        f"{now.starts}",
    ]
