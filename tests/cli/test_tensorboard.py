"""`--tensorboard DIR`: which files are there, what is in them, and what is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import paceline as package
from tests.reporting.event_reading import Event, read_events

SMALL = ["--data", "digits:300", "--epochs", "2", "--batch", "50", "--device", "cpu", "--threads", "1"]

STUDY = """
repetitions = 2
[workload]
network = "mlp"
data = "digits:200"
epochs = 2
batch = 50
threads = 1
[grid]
lr = [0.1, 0.3]
"""


def events_of(directory: Path) -> list[Event]:
    return [event for path in sorted(directory.iterdir()) for event in read_events(path)]


def points_of(directory: Path) -> list[Event]:
    return [event for event in events_of(directory) if event.scalars]


def test_a_training_writes_a_point_an_epoch_into_a_folder_of_its_name(paceline, tmp_path):
    assert paceline("train", "mlp", *SMALL, "--out", "runs/first", "--tensorboard", "board").code == 0
    points = points_of(tmp_path / "board" / "first")
    assert [point.step for point in points] == [6, 12]
    for point, epoch in zip(points, package.load(tmp_path / "runs" / "first").epochs, strict=True):
        assert point.scalars["loss/train"] == pytest.approx(epoch.loss)
        assert point.scalars["accuracy/test"] == pytest.approx(epoch.test_accuracy)
        assert point.scalars["time/epoch_s"] == pytest.approx(epoch.wall_s)
    assert points[0].wall_time <= points[1].wall_time


@pytest.mark.parametrize("driver", [pytest.param("local", marks=pytest.mark.slow), "virtual"])
def test_workers_real_or_simulated_have_their_staleness(paceline, tmp_path, driver):
    words = ["--strategy", "downpour", "--workers", "2", "--driver", driver, "--out", "run", "--tensorboard", "board"]
    result = paceline("train", "dnn", *SMALL, *words)
    assert result.code == 0, result.err
    points = points_of(tmp_path / "board" / "run")
    between, last = (point.step for point in points)
    assert 6 <= between <= last == 12, "one worker may be in the second epoch while another ends the first"
    assert all("staleness/mean" in point.scalars for point in points)
    assert ("time/virtual_s" in points[-1].scalars) == (driver == "virtual")


def test_a_resumed_run_goes_on_with_its_steps(paceline, tmp_path):
    assert paceline("train", "mlp", *SMALL, "--out", "run", "--tensorboard", "board").code == 0
    assert paceline("train", "--resume", "run", "--epochs", "3", "--tensorboard", "board").code == 0
    assert len(list((tmp_path / "board" / "run").iterdir())) == 2
    assert [point.step for point in points_of(tmp_path / "board" / "run")] == [6, 12, 18]


def test_without_a_directory_of_its_own_the_run_is_named_as_its_usual_one(paceline, tmp_path):
    assert paceline("train", "mlp", *SMALL, "--tensorboard", "board").code == 0
    assert [path.name for path in (tmp_path / "board").iterdir()] == [p.name for p in (tmp_path / "runs").iterdir()]


def test_without_the_option_nothing_of_it_is_imported(tmp_path):
    words = ["train", "mlp", *SMALL, "--out", str(tmp_path / "run")]
    look = "print('paceline.reporting.tensorboard' in sys.modules)"
    code = f"import sys; from paceline.cli import main; main({words}); {look}"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert said.stdout.splitlines()[-1] == "False"


def test_a_place_that_cannot_be_written_is_refused_before_the_work(paceline, tmp_path):
    (tmp_path / "file").write_text("")
    for place in ("file", "file/below", "/proc/board"):
        said = paceline("train", "mlp", *SMALL, "--tensorboard", place).refused()
        assert said.startswith("--tensorboard ") and ("is a file" in said or "cannot be written" in said)
    assert [path.name for path in tmp_path.iterdir()] == ["file"], "no run was begun"


def test_another_run_of_the_same_name_is_not_drawn_over(paceline, tmp_path):
    assert paceline("train", "mlp", *SMALL, "--out", "a/run", "--tensorboard", "board").code == 0
    said = paceline("train", "mlp", *SMALL, "--out", "b/run", "--tensorboard", "board").refused()
    assert said == "--tensorboard board/run holds the events of another run: choose another directory"
    assert not (tmp_path / "b").exists()


@pytest.mark.slow
def test_every_run_of_an_experiment_is_one_for_tensorboard(paceline, tmp_path):
    (tmp_path / "study.toml").write_text(STUDY)
    result = paceline("compare", "study.toml", "--out", "study", "--tensorboard", "board")
    assert result.code == 0, result.err
    boards = sorted((tmp_path / "board").iterdir())
    names = [path.name for path in boards]
    assert [name.rpartition("-")[0].rpartition("-")[0] for name in names] == ["lr-0.1", "lr-0.1", "lr-0.3", "lr-0.3"]
    assert [name[-2:] for name in names] == ["-1", "-2", "-1", "-2"]
    groups = []
    for board in boards:
        assert [point.step for point in points_of(board)] == [4, 8]
        (told,) = [event for event in events_of(board) if event.hyper_parameters]
        groups.append((told.group, told.hyper_parameters["lr"], told.hyper_parameters["seed"]))
        assert told.group in board.name
    assert [group[1:] for group in groups] == [(0.1, 0.0), (0.1, 1.0), (0.3, 0.0), (0.3, 1.0)]
    assert len({group for group, *_ in groups}) == 2, "repetitions share one"
    again = paceline("compare", "study.toml", "--out", "again", "--tensorboard", "board")
    assert "holds the events of another run" in again.refused()
    assert not (tmp_path / "again").exists()


@pytest.mark.slow
def test_a_run_that_is_made_again_begins_its_curves_again(paceline, tmp_path):
    (tmp_path / "study.toml").write_text(STUDY.replace("repetitions = 2", "").replace("[0.1, 0.3]", "[0.1]"))
    assert paceline("compare", "study.toml", "--out", "study", "--tensorboard", "board").code == 0
    (made,) = (tmp_path / "study" / "runs").iterdir()
    (made / "outcome.json").write_text("{")
    assert paceline("compare", "--resume", "study", "--tensorboard", "board").code == 0
    (board,) = (tmp_path / "board").iterdir()
    assert [event.step for event in events_of(board) if event.session] == [1, 1]


def test_what_an_experiment_cannot_write_is_said_before_its_first_run(paceline, tmp_path):
    (tmp_path / "study.toml").write_text(STUDY)
    (tmp_path / "measured.toml").write_text('kind = "measure"\n[workload]\nnetwork = "mlp"\n')
    said = paceline("compare", "study.toml", "--out", "study", "--tensorboard", "study.toml").refused()
    assert said == "--tensorboard study.toml is a file: choose a directory"
    said = paceline("compare", "measured.toml", "--out", "study", "--tensorboard", "board").refused()
    assert said.startswith("--tensorboard needs runs of kind")
    assert "--collect runs nothing" in paceline("compare", "--collect", ".", "--tensorboard", "board").refused()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["measured.toml", "study.toml"]
