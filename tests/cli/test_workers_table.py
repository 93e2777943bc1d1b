"""The table of workers below the bar of a live run."""

from __future__ import annotations

import io
import math

import pytest
from rich.console import Console

import paceline as package
from paceline.cli.progress import TerminalWatcher
from paceline.cli.workers_table import OVER_S, ROWS, WorkersTable
from paceline.strategy.distribution import WorkerRecord
from paceline.training.watcher import WorkersProgress


class Cluster:
    """Workers of constant speed, at a time that the test sets."""

    def __init__(self, rates: list[float]) -> None:
        self.rates, self.now_s = rates, 0.0
        self.table = WorkersTable(lambda: self.now_s)

    def records(self) -> list[WorkerRecord]:
        return [
            WorkerRecord(number, round(rate * self.now_s), loss=0.5, computing_s=0.75 * self.now_s,
                         waiting_s=0.25 * self.now_s)
            for number, rate in enumerate(self.rates)
        ]  # fmt: skip

    def at(self, now_s: float) -> list[list[str]]:
        """The rows that are shown at a time, as words."""
        self.now_s = now_s
        self.table.update(WorkersProgress(2, 2, 0.0, 0.0, self.records))
        shown = Console(file=io.StringIO(), width=100)
        shown.print(self.table)
        return [line.split() for line in shown.file.getvalue().splitlines() if line.strip()]


def test_rates_and_shares_are_those_of_the_last_seconds():
    cluster = Cluster([10.0, 20.0])
    assert cluster.at(1.0) == []
    assert cluster.at(2.0)[1:] == [
        ["0", "10", "75", "%", "0", "%", "25", "%", "0.5000", "1"],
        ["1", "20", "75", "%", "0", "%", "25", "%", "0.5000", "1"],
    ]
    cluster.rates[1] = 40.0  # as if it had always been as fast: it has done 120 batches at once by then
    assert cluster.at(3.0)[2][1] == "50"
    for second in range(4, 4 + int(OVER_S) + 2):
        rows = cluster.at(float(second))
    assert rows[2][1] == "40"


def test_it_is_redrawn_only_when_it_is_due():
    cluster = Cluster([10.0])
    cluster.at(1.0)
    first = cluster.at(2.0)
    cluster.rates[0] = 1000.0
    assert cluster.at(2.1) == first != cluster.at(3.0)


def test_of_many_workers_the_slowest_are_shown():
    cluster = Cluster([float(100 - number) for number in range(ROWS + 4)])
    cluster.at(1.0)
    rows = cluster.at(2.0)
    assert [row[0] for row in rows[1 : ROWS + 1]] == [str(number) for number in range(4, ROWS + 4)]
    assert " ".join(rows[-1]) == f"the slowest {ROWS} of {ROWS + 4} workers"


def test_a_worker_that_has_done_nothing_has_no_shares():
    cluster = Cluster([1.0])
    cluster.records = lambda: [WorkerRecord(0, loss=math.nan)]
    cluster.at(1.0)
    assert cluster.at(2.0)[1] == ["0", "0", "–", "–", "–", "–", "1"]


@pytest.mark.parametrize("live", [True, False])
def test_a_live_run_with_workers_shows_each_of_them(live, monkeypatch):
    monkeypatch.setattr("paceline.cli.workers_table.REDRAW_EVERY_S", 0.0)
    monkeypatch.setattr("paceline.training.drivers.local.local_training.SHOW_EVERY_S", 0.0)
    shown = Console(file=io.StringIO(), force_terminal=True, width=100)
    with TerminalWatcher(shown, live=live) as watcher:
        package.train("mlp", data="digits", epochs=3, device="cpu", workers=2, watcher=watcher)
        watcher.bar.refresh()
    assert ("exchanging" in shown.file.getvalue()) == live
