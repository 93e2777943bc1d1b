"""Runs are made in processes of their own: what befalls one is recorded, and the others go on."""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path

import pytest

import paceline
from paceline import record
from paceline.errors import InputError, OutputError
from paceline.experiment.directory import locked_experiment
from paceline.experiment.executing import execute
from paceline.experiment.experiment import Experiment
from paceline.results.table import collect
from paceline.training.drivers.local.process_server import process_server
from tests.experiment.studies import SMALL, small, table, virtual, without_times

OWN = """
import os, signal, sys, time
from torch import nn

IN_A_RUN = any("fork_server" in word for word in sys.orig_argv)

def build():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))

def dies():
    if IN_A_RUN:
        os.kill(os.getpid(), signal.SIGKILL)
    return build()

def sleeps():
    if IN_A_RUN:
        time.sleep(600)
    return build()

def breaks():
    if IN_A_RUN:
        raise RuntimeError("no luck")
    return build()
"""


class Kept:
    """A watcher that keeps what it is told."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.begun_with: list[int] = []
        self.finished_runs: list[str] = []
        self.left: list[float | None] = []

    def begun(self, standing, notes):
        self.begun_with.append(standing.done)
        self.notes += notes

    def advanced(self, standing):
        self.left.append(standing.left_s)

    def finished(self, run, row):
        self.finished_runs.append(run.id)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder with modules of a user's own."""
    (tmp_path / "own_parts.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    sys.modules.pop("own_parts", None)


@pytest.fixture(scope="module")
def done(tmp_path_factory) -> tuple[Experiment, Path]:
    """A finished experiment; not to be changed."""
    place = tmp_path_factory.mktemp("done") / "study"
    experiment = virtual(title="A title")
    execute(experiment, out=place, jobs=2)
    return experiment, place


def test_every_run_has_a_row_and_a_directory_with_all_its_records(done):
    experiment, place = done
    found = collect(place)
    assert [row["run"] for row in found.rows] == [run.id for run in experiment.runs()]
    assert {row["status"] for row in found.rows} == {"finished"}
    assert (found.title, found.planned, found.varied, found.skipped) == ("A title", 8, ("strategy", "workers"), ())
    for row in found.rows:
        directory = found.directories[row["directory"]]
        run = record.load(directory)
        assert (run.workload.seed, run.distribution.workers) == (row["seed"], row["workers"])
        assert run.test_accuracy == row["test_accuracy"] and run.distribution.seconds == row["virtual_s"]
        assert (directory / "log.txt").read_text().startswith(("no GPU found", "step: "))
        assert (directory / "checkpoint.pt").exists()
        assert row["peak_memory_bytes"] > 1e7 and row["cpu_s"] > 0 and 0 < row["wall_s"] < row["process_s"]
    assert list((place / "working").iterdir()) == []


def test_tables_are_those_that_collecting_gives_again(done, tmp_path):
    _, place = done
    collect(place).write(tmp_path)
    for name in ("results.csv", "summary.csv"):
        assert (tmp_path / name).read_text() == (place / name).read_text()


def test_the_summary_has_mean_and_spread_of_the_repetitions(done):
    _, place = done
    rows, summary = table(place / "results.csv"), table(place / "summary.csv")
    assert [(row["strategy"], row["workers"], row["n"]) for row in summary] == [
        ("sync", "1", "2"), ("sync", "2", "2"), ("downpour", "1", "2"), ("downpour", "2", "2"),
    ]  # fmt: skip
    for setting in summary:
        values = [float(row["virtual_s"]) for row in rows if row["setting"] == setting["setting"]]
        assert float(setting["virtual_s_mean"]) == pytest.approx(sum(values) / 2)
        assert float(setting["virtual_s_std"]) == pytest.approx(abs(values[0] - values[1]) / 2**0.5)
        assert (float(setting["virtual_s_min"]), float(setting["virtual_s_max"])) == (min(values), max(values))


def test_one_call_loads_an_experiment_or_a_run_of_it(done):
    experiment, place = done
    assert len(paceline.load(place).rows) == paceline.load(place).planned == len(experiment.runs())
    assert paceline.load(place / "runs" / experiment.runs()[0].name).status == "finished"
    assert paceline.load(place / "runs" / experiment.runs()[0].name / "outcome.json").run.workers == 1


def test_a_run_is_the_one_that_train_makes(done):
    experiment, place = done
    from paceline.training.virtual_run import run_virtual

    planned = next(run for run in experiment.runs() if run.settings["strategy"] == "sync" and run.workers == 1)
    alone = paceline.train(planned.workload)
    (row,) = (row for row in collect(place).rows if row["run"] == planned.id)
    assert row["test_accuracy"] == alone.test_accuracy
    assert row["test_loss"] == pytest.approx(run_virtual(planned.workload, "sync", workers=1).test_loss)


def test_going_on_with_what_is_done_does_nothing_but_write_its_tables(done):
    experiment, place = done
    before = (place / "results.csv").read_text()
    (place / "results.csv").unlink()
    watcher = Kept()
    found = execute(experiment, resume=place, watcher=watcher)
    assert watcher.begun_with == [8] and watcher.finished_runs == []
    assert (place / "results.csv").read_text() == before and len(found.rows) == 8


@pytest.mark.slow
def test_what_fails_is_recorded_and_the_others_go_on(here):
    networks = ["own_parts:dies", "own_parts:breaks", "own_parts:build"]
    grid = ({"network": networks}, {"network": "dnn", "lr": 1e30, "optimizer": "sgd", "activation": "relu"})
    workload = {"data": "digits:100", "epochs": 1, "batch": 50}
    experiment = Experiment("faults", workload=workload, grid=grid, checkpoints=False)
    watcher = Kept()
    found = execute(experiment, out="study", watcher=watcher)
    rows = {row["network"].removeprefix("own_parts:"): row for row in found.rows}
    assert {name: row["status"] for name, row in rows.items()} == {
        "dies": "failed", "breaks": "failed", "build": "finished", "dnn": "diverged",
    }  # fmt: skip
    assert rows["dies"]["error"] == "its process was ended by SIGKILL, perhaps for want of memory"
    assert "no luck" in rows["breaks"]["error"]
    assert "the loss became" in rows["dnn"]["error"] and "working" not in rows["dnn"]["error"]
    assert rows["build"]["error"] == "" and rows["build"]["test_accuracy"] > 0
    assert rows["dies"]["test_accuracy"] is None
    assert not list(Path("study/runs").glob("*/checkpoint.pt"))
    counts = {row["network"]: (row["n"], row["diverged"], row["failed"]) for row in found.summary}
    assert counts["dnn"] == (0, 1, 0) and counts["own_parts:dies"] == (0, 0, 1)

    # Failed runs are repeated on request, and only those.
    (here / "own_parts.py").write_text(OWN.replace("IN_A_RUN = any", "IN_A_RUN = False and any"))
    again = Kept()
    execute(experiment, resume="study", watcher=again)
    assert again.finished_runs == []
    found = execute(experiment, resume="study", watcher=again, retry=True)
    assert sorted(again.finished_runs) == sorted(row["run"] for row in rows.values() if row["status"] == "failed")
    assert [row["status"] for row in found.rows] == ["finished"] * 3 + ["diverged"], [
        row["error"] for row in found.rows
    ]


@pytest.mark.slow
def test_a_run_that_takes_too_long_is_ended(here):
    workload = {"network": "own_parts:sleeps", "data": "digits:100", "epochs": 1}
    (row,) = execute(Experiment("slow", workload=workload, timeout_s=1.0), out="study").rows
    assert (row["status"], row["error"]) == ("failed", "it took longer than timeout = 1 s")
    assert 1 <= row["process_s"] < 600


@pytest.mark.slow
def test_a_training_a_measurement_and_a_simulation_stand_in_one_table(tmp_path):
    grids = (
        {"strategy": ["none"], "measure": [True]},
        {"strategy": ["downpour"], "workers": [2], "driver": "local"},
        {"kind": "measure", "iterations": 40},
        {"kind": "simulate", "strategy": ["sync"], "workers": [4], "steps": [10], "bandwidth": [1e6]},
    )
    workload = {**SMALL, "epochs": 20}
    found = execute(Experiment("kinds", workload=workload, grid=grids), out=tmp_path / "study")
    alone, local, measured, simulated = found.rows
    assert [row["status"] for row in found.rows] == ["finished"] * 4
    assert alone["test_accuracy"] > 0 and alone["iteration_s"] > 0 and alone["strategy"] == "none"
    assert local["updates"] == 40 and local["workers"] == 2 and local["mean_staleness"] is not None
    assert measured["iteration_s"] > 0 and measured["forward_s"] > 0 and measured["updates"] is None
    assert simulated["steps_per_s"] > 0 and simulated["message_bytes"] == 4 * 8970
    assert (tmp_path / "study" / simulated["directory"] / "record.json").exists()
    assert (tmp_path / "study" / measured["directory"] / "layers.csv").exists()
    assert (tmp_path / "study" / alone["directory"] / "measure" / "measurement.json").exists()


def test_runs_at_a_time_have_cores_of_their_own_and_crowding_is_said(tmp_path):
    grid = ({"lr": [0.1, 0.2]}, {"lr": [0.1], "threads": [len(os.sched_getaffinity(0)) + 1]})
    watcher = Kept()
    found = execute(small(grid=grid), out=tmp_path / "study", jobs=2, watcher=watcher)
    cores = len(os.sched_getaffinity(0))
    assert len(found.rows) == 3
    assert all(row["cores"] in (max(1, cores // 2), cores - cores // 2) for row in found.rows)
    assert any("threads" in note and "wait for each other" in note for note in watcher.notes)
    assert watcher.left[-1] is not None


@pytest.mark.slow
def test_a_damaged_run_is_put_aside_and_made_again(done, tmp_path):
    experiment, whole = done
    place = Path(shutil.copytree(whole, tmp_path / "study"))
    before = collect(place)
    (place / before.rows[0]["directory"] / "record.json").write_text("{")
    watcher = Kept()
    after = execute(experiment, resume=place, jobs=2, watcher=watcher)
    assert watcher.finished_runs == [before.rows[0]["run"]]
    assert "cannot be read and is repeated" in watcher.notes[0]
    assert without_times(list(after.rows)) == without_times(list(before.rows))
    assert len(list((place / "damaged").iterdir())) == 1


class TestPlaces:
    def test_a_directory_that_is_taken_is_refused(self, done, tmp_path):
        experiment, place = done
        with pytest.raises(OutputError, match="holds this experiment already: continue with `resume"):
            execute(experiment, out=place)
        with pytest.raises(OutputError, match=r"holds another experiment \(small\)"):
            execute(virtual(repetitions=1), out=place)
        (tmp_path / "notes.txt").touch()
        with pytest.raises(OutputError, match="is not empty"):
            execute(experiment, out=tmp_path)
        with pytest.raises(OutputError, match="is a file"):
            execute(experiment, out=tmp_path / "notes.txt")

    def test_another_experiment_is_not_resumed_and_what_changed_is_said(self, done):
        _, place = done
        with pytest.raises(InputError, match=r"repetitions was 2 and is 3; start it with `out`"):
            execute(virtual(title="A title", repetitions=3), resume=place)
        assert len(execute(virtual(title="A title"), resume=place).rows) == 8

    def test_two_at_a_time_are_refused_and_a_dead_one_is_not_in_the_way(self, done):
        experiment, place = done
        with locked_experiment(place), pytest.raises(OutputError, match=f"another compare \\(process {os.getpid()}\\)"):
            execute(experiment, resume=place)
        assert len(execute(experiment, resume=place).rows) == 8

    @pytest.mark.slow
    def test_who_was_killed_before_anything_was_there_is_not_in_the_way(self, tmp_path):
        (tmp_path / ".lock").touch()
        (tmp_path / "experiment.toml").touch()
        found = execute(small(grid=()), out=tmp_path)
        assert len(found.rows) == 1


@pytest.mark.slow
def test_the_process_that_starts_runs_may_be_lost_too(tmp_path):
    """Its runs are repeated; none of its processes stays."""
    lost: list[int] = []

    class Killer(Kept):
        def advanced(self, standing):
            server = process_server().process.pid
            runs = Path(f"/proc/{server}/task/{server}/children").read_text().split()
            if standing.running and runs and not lost:
                lost.extend([server, *map(int, runs)])
                os.kill(server, 9)

    watcher = Killer()
    found = execute(small(workload={**SMALL, "epochs": 60}, repetitions=2), out=tmp_path / "study", watcher=watcher)
    assert lost and [row["status"] for row in found.rows] == ["finished"] * 4
    assert len(set(watcher.finished_runs)) == len(watcher.finished_runs) == 4
    deadline_s = time.monotonic() + 60
    while any(Path(f"/proc/{process}").exists() for process in lost):
        assert time.monotonic() < deadline_s, "it is still there"
        time.sleep(0.02)
