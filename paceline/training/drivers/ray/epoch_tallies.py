"""A worker's losses and accuracies by epoch, which it reports now and then: counting them costs a little."""

from __future__ import annotations

import time

from paceline.step.tally import Score, Tally

REPORT_EVERY_S = 0.25


class EpochTallies:
    def __init__(self, top: int) -> None:
        self.top = top
        self.tallies: dict[int, Tally] = {}
        self.changed: set[int] = set()
        self.reported_s = time.monotonic()

    def tally(self, epoch: int) -> Tally:
        if epoch not in self.tallies:
            self.tallies[epoch] = Tally(self.top)
            self.reported_s = 0.0  # the epoch before may be over
        self.changed.add(epoch)
        return self.tallies[epoch]

    def scores(self, *, now: bool = False) -> dict[int, Score] | None:
        """Scores of the epochs that changed since the last report; None if no report is due."""
        if not self.changed or not (now or time.monotonic() - self.reported_s >= REPORT_EVERY_S):
            return None
        found = {epoch: self.tallies[epoch].read() for epoch in self.changed}
        self.changed.clear()
        self.reported_s = time.monotonic()
        return found
