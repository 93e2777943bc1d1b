"""`paceline train … --measure`: a run as always, and a measurement of it in its directory."""

from __future__ import annotations

import csv
import io

import pytest
import torch
from rich.console import Console

import paceline as package
from paceline.cli.progress import TerminalWatcher

WORDS = ["--data", "digits", "--batch", "32", "--epochs", "3", "--threads", "1", "--device", "cpu"]
FILES = {"measurement.json", "layers.csv", "iterations.csv", "experiment.csv", "trace.json", "parts.png", "parts.svg"}


def experiment_of(place) -> dict[str, str]:
    with (place / "experiment.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    return row


def parameters_of(run):
    return torch.load(run / "checkpoint.pt", weights_only=True)["parameters"]


def same(a, b) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_a_measured_run_is_the_same_run_with_a_measurement(paceline, tmp_path):
    bare = paceline("train", "lenet5", *WORDS, "--out", "bare")
    result = paceline("train", "lenet5", *WORDS, "--measure", "--out", "run")
    assert result.code == bare.code == 0, result.err
    assert same(parameters_of(tmp_path / "run"), parameters_of(tmp_path / "bare"))
    assert result.out.index("test accuracy") < result.out.index("conv2") < result.out.index("accounted")
    assert "tables, trace and plots: run/measure" in result.out
    m = package.load(tmp_path / "run" / "measure" / "measurement.json")
    assert m.name == "lenet5" and m.batch == 32 and m.sampled >= 20 and m.iterations == 3 * (1437 // 32)
    assert {path.name for path in (tmp_path / "run" / "measure").iterdir()} >= FILES
    assert "accounted" not in bare.out
    written = {"checkpoint.pt", "record.json", "summary.html", "trace.json"}
    assert {p.name for p in (tmp_path / "bare").iterdir()} == written
    run = package.load(tmp_path / "run")
    row = experiment_of(tmp_path / "run" / "measure")
    assert float(row["validation_s"]) == pytest.approx(run.trace.total_s("validate"))
    assert 0 < float(row["at_25_percent_s"]) < float(row["at_100_percent_s"]) <= run.train_s
    assert row["output_checkpoint"] == "run/checkpoint.pt" and row["output"] == "run/measure"
    assert row["setting_epochs"] == "3"

    again = paceline("measure", "--load", "run/measure")
    assert again.code == 0 and "conv2" in again.out
    assert experiment_of(tmp_path / "run" / "measure") == row


def test_live_needs_workers_or_measure(paceline):
    assert paceline("train", "mlp", *WORDS, "--live").refused().startswith("--live shows workers, or what --measure")


def test_the_bar_of_a_live_run_has_parts_and_layers_below_it(tmp_path, monkeypatch):
    monkeypatch.setattr("paceline.measurement.live_table.REDRAW_EVERY_S", 0.0)
    shown = Console(file=io.StringIO(), force_terminal=True, width=100)
    clock = package.TrainingClock(live=True)
    with TerminalWatcher(shown, clock) as watcher:
        package.train(
            "lenet5", data="digits", batch=32, epochs=1, device="cpu", threads=1, measure=clock, watcher=watcher
        )
        watcher.bar.refresh()
    text = shown.file.getvalue()
    assert "lenet5: iteration" in text and "backward ms" in text and "conv2" in text


def test_without_a_directory_given_it_is_in_the_default_one(paceline, tmp_path):
    assert paceline("train", "mlp", *WORDS, "--measure").code == 0
    assert (tmp_path / "runs" / "mlp-digits-1" / "measure" / "measurement.json").exists()


@pytest.mark.slow
def test_a_resumed_run_adds_a_measurement_of_its_own(paceline, tmp_path):
    assert paceline("train", "mlp", *WORDS, "--measure", "--out", "run").code == 0
    result = paceline("train", "--resume", "run", "--epochs", "5", "--measure")
    assert result.code == 0, result.err
    assert package.load(tmp_path / "run" / "measure" / "measurement.json").iterations == 3 * 44
    assert package.load(tmp_path / "run" / "measure-2" / "measurement.json").iterations == 2 * 44


def test_too_little_left_to_measure_is_refused_and_changes_nothing(paceline, tmp_path):
    assert paceline("train", "mlp", *WORDS, "--out", "run").code == 0
    before = {path: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    assert "0 iterations are too few to measure" in paceline("train", "--resume", "run", "--measure").refused()
    assert {path: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before


def test_too_few_iterations_get_one_line_and_leave_nothing(paceline, tmp_path):
    result = paceline("train", "mlp", "--data", "digits:64", "--batch", "32", "--epochs", "1", "--measure")
    assert "2 iterations are too few" in result.refused()
    assert not (tmp_path / "runs").exists()


def test_a_diverged_run_keeps_what_was_measured(paceline, tmp_path, monkeypatch):
    from paceline.errors import Diverged
    from paceline.training.trainer import Trainer

    monkeypatch.setattr(Trainer, "_check_loss", _fails_after(Trainer._check_loss, Diverged, 1))
    result = paceline("train", "mlp", *WORDS, "--measure", "--out", "run")
    assert result.code == 1
    assert (tmp_path / "run" / "measure" / "measurement.json").exists()
    assert experiment_of(tmp_path / "run" / "measure")["at_100_percent_s"] == ""


def _fails_after(finish, error, epochs):
    def failing(self, *given):
        if self.epoch + 1 > epochs:
            raise error("the loss became nan")
        finish(self, *given)

    return failing
