"""A table in the terminal while several workers train: what each of them did in the last seconds."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Sequence

from rich.table import Table
from rich.text import Text

from paceline.cli.console import rows_table
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
        # The slowest are shown, for they are what one looks for.
        rows = sorted(zip(last, first, strict=True), key=lambda pair: pair[0].batches - pair[1].batches)[:ROWS]
        by_worker = sorted(rows, key=lambda pair: pair[0].worker)
        table = rows_table((_row(now, before, last_s - first_s) for now, before in by_worker), left=())
        if len(last) > ROWS:
            table.caption, table.caption_justify = f"the slowest {ROWS} of {len(last)} workers", "left"
        return table

    def __rich__(self) -> Table | Text:
        return self._view or Text("")


def _row(now: WorkerRecord, before: WorkerRecord, seconds: float) -> dict[str, str]:
    rate = max(0, now.batches - before.batches) / seconds
    parts = {"computing": "computing_s", "exchanging": "communicating_s", "waiting": "waiting_s"}
    spent = {name: max(0.0, getattr(now, key) - getattr(before, key)) for name, key in parts.items()}
    whole_s = sum(spent.values())
    return {
        "worker": str(now.worker), "batches/s": f"{rate:,.4g}",
        **{name: percent(seconds / whole_s, 0) if whole_s else "–" for name, seconds in spent.items()},
        "mean loss": "–" if math.isnan(now.loss) else f"{now.loss:.4f}", "starts": f"{now.starts}",
    }  # fmt: skip
