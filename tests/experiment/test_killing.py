"""An experiment that is killed at any moment and resumed has the rows of an undisturbed one: all of them, each once."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline.results.table import collect
from tests.experiment.studies import table, without_times
from tests.own_process import program

STUDY = """
repetitions = {repetitions}
[workload]
network = "dnn"
data = "digits:100"
epochs = 1
[strategy]
driver = "virtual"
compute-time = "gamma:100:0.01"
[[grid]]
strategy = ["sync", "downpour", "delay-compensated"]
workers = [1, 2]
batch = [20, 50]
"""
SETTINGS = 12
LONG = """
[workload]
network = "lenet5"
data = "digits"
epochs = 2000
[strategy]
strategy = "downpour"
[grid]
batch = [32, 64]
"""


class Compare:
    """The command, in a process of its own."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.process = program("compare", *arguments, cwd=folder, errors_too=True, session=True)

    def processes(self) -> list[int]:
        """All that it started, and what they started."""
        found, new = [], [self.process.pid]
        while new:
            found += new
            new = [child for parent in new for child in _children(parent)]
        return found[1:]

    def end(self) -> tuple[int, str]:
        said, _ = self.process.communicate(timeout=120)
        return self.process.wait(), said


def _children(process: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    except OSError:
        return []


def _alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_for(condition, seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.01)


@pytest.fixture
def start(tmp_path: Path) -> Iterator:
    """Starts the command in an empty folder; nothing of it outlives the test."""
    started = []

    def compare(*arguments: str) -> Compare:
        started.append(Compare(tmp_path, *arguments))
        return started[-1]

    yield compare
    for compare in started:
        compare.process.close()


@pytest.mark.parametrize(
    ("repetitions", "kills"),
    [
        pytest.param(1, (4, 8), marks=pytest.mark.slow),
        pytest.param(5, (8, 18, 28, 38, 48), marks=pytest.mark.soak),
    ],
    ids=["two kills", "five kills"],
)
def test_kills_leave_the_rows_of_an_undisturbed_experiment(tmp_path, start, repetitions, kills):
    (tmp_path / "study.toml").write_text(STUDY.format(repetitions=repetitions))
    runs = repetitions * SETTINGS
    undisturbed = start("study.toml", "--out", "whole")
    generator = random.Random(0)
    killed = tmp_path / "killed"
    begin = ("study.toml", "--out", "killed")
    for number in kills:
        compare = start(*begin)
        wait_for(lambda number=number: len(list(killed.glob("runs/*"))) >= number)
        time.sleep(generator.uniform(0.0, 0.2))
        processes = compare.processes()
        compare.process.send_signal(signal.SIGKILL)
        assert compare.end()[0] == -signal.SIGKILL, "it was still at work"
        wait_for(lambda processes=processes: not any(map(_alive, processes)), 10.0)
        # What is there is whole, whenever the end came.
        there = collect(killed)
        assert number <= len(there.rows) < runs and there.skipped == ()
        begin = ("--resume", "killed")
    code, said = start(*begin).end()
    assert code == 0, said
    code, said = undisturbed.end()
    assert code == 0, said

    expected, found = (table(tmp_path / name / "results.csv") for name in ("whole", "killed"))
    assert len(found) == runs and len({row["run"] for row in found}) == runs
    assert len({row["directory"] for row in found}) == len(list(killed.glob("runs/*"))) == runs
    assert {row["status"] for row in found} == {"finished"}
    assert without_times(found) == without_times(expected)
    assert list((killed / "working").iterdir()) == []
    figures = ("setting", "n", "test_accuracy_mean", "test_loss_std", "virtual_s_max", "mean_staleness_mean")
    summaries = [table(tmp_path / name / "summary.csv") for name in ("whole", "killed")]
    assert [[row[f] for f in figures] for row in summaries[0]] == [[row[f] for f in figures] for row in summaries[1]]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
def test_a_signal_ends_all_processes_and_says_how_to_go_on(tmp_path, start, number):
    """Here each run has a server and workers; two runs are being made."""
    (tmp_path / "long.toml").write_text(LONG)
    compare = start("long.toml", "--jobs", "2", "--out", "study")
    wait_for(lambda: len(compare.processes()) >= 1 + 2 * (1 + 3))
    processes = compare.processes()
    os.killpg(compare.process.pid, number)  # as a terminal does
    code, said = compare.end()
    assert code == 130
    assert (
        said.splitlines()[-1]
        == "paceline: interrupted after 0 of 2 runs; continue with: paceline compare --resume study"
    )
    wait_for(lambda: not any(map(_alive, processes)), 10.0)
    assert list((tmp_path / "study" / "working").iterdir()) == []


@pytest.mark.slow
def test_two_commands_on_one_directory_are_refused(tmp_path, start):
    (tmp_path / "long.toml").write_text(LONG)
    first = start("long.toml", "--out", "study")
    wait_for(lambda: (tmp_path / "study" / "experiment.json").exists())
    code, said = start("--resume", "study").end()
    assert code == 2
    expected = f"study is in use by another compare (process {first.process.pid}): wait until it ends"
    assert said == f"paceline: {expected}\n"
