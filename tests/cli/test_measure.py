"""`paceline measure` from the command line: the table, the files, and showing them again."""

from __future__ import annotations

import csv
import json
from itertools import pairwise

import pytest

import paceline as package


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    from paceline.cli import main

    place = tmp_path_factory.mktemp("measured") / "out"
    words = ["--data", "digits", "--batch", "32", "--iterations", "120", "--threads", "1"]
    assert main(["measure", "lenet5", *words, "--out", str(place), "--json", str(place.parent / "m.json")]) == 0
    return place


def rows_of(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_every_file_is_there(measured):
    names = {path.name for path in measured.iterdir()}
    plots = {f"{plot}.{kind}" for kind in ("png", "svg") for plot in ("parts", "layers", "sampled-iterations")}
    assert {"measurement.json", "layers.csv", "iterations.csv", "experiment.csv", "trace.json"} <= names
    assert plots | {f"layers-by-iteration-lenet5-{part}.png" for part in ("forward", "backward")} <= names


@pytest.mark.serial
def test_the_record_adds_up(measured):
    m = package.load(measured / "measurement.json")
    assert json.loads((measured.parent / "m.json").read_text())["kind"] == "measurement"
    assert sum(m.parts_s.values()) == pytest.approx(m.iteration_s.mean_s, rel=1e-6)
    assert m.sampled >= 20 and m.iterations == 120
    assert 0.8 < m.accounted < 1.25  # a busy machine; the benchmark is stricter
    rows = {layer.name: layer for layer in m.layers}
    for name in ("conv1", "conv2", "fc1", "fc2", "output"):
        assert rows[name].forward_s.median_s > 0 and rows[name].backward_s.median_s > 0
        assert rows[name].flops > 0 and rows[name].parameters > 0 and rows[name].update_apportioned
    assert sum(layer.parameters for layer in m.layers) == 61_706
    assert rows["conv2"].flops == 2 * 32 * 16 * 10 * 10 * 6 * 25


def test_the_tables_have_the_promised_columns(measured):
    layers = rows_of(measured / "layers.csv")
    assert list(layers[0]) == ["iteration", "device", "layer", "forward_s", "backward_s", "update_s"]
    iterations = rows_of(measured / "iterations.csv")
    assert {"iteration", "device", "seconds", "loss", "top-1", "top-n"} <= set(iterations[0])
    assert 0.0 < float(iterations[0]["loss"]) < 10.0
    (experiment,) = rows_of(measured / "experiment.csv")
    times = [float(experiment[f"at_{percent}_percent_s"]) for percent in (25, 50, 75, 100)]
    assert times == sorted(times) and times[-1] == float(experiment["training_s"]) > 0
    assert float(experiment["validation_s"]) > 0 and experiment["validation"] == "one validation of 360 samples"
    assert experiment["output"] == str(measured) and experiment["setting_data"] == "digits"


def test_the_trace_opens_as_a_chrome_trace(measured):
    events = json.loads((measured / "trace.json").read_text())["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    assert any(event["name"] == "backward conv1" for event in spans)
    for before, after in pairwise(spans):
        assert after["ts"] >= before["ts"] + before["dur"] - 1e-3  # one after another, never overlapping


def test_loading_gives_the_same_table_without_running(measured, paceline):
    (measured / "layers.csv").unlink()
    result = paceline("measure", "--load", str(measured))
    assert result.code == 0 and "conv2" in result.out and "accounted" in result.out
    assert (measured / "layers.csv").exists()


def test_a_chain_is_measured_by_its_links(paceline, tmp_path):
    result = paceline(
        "measure",
        "dnn",
        "--data",
        "digits",
        "--iterations",
        "60",
        "--device",
        "cpu",
        "--json",
        str(tmp_path / "m.json"),
    )
    assert result.code == 0, result.err
    layers = {row["name"]: row for row in json.loads((tmp_path / "m.json").read_text())["layers"]}
    assert layers["fc1"]["backward_s"]["median_s"] > 0 and layers["dropout1"]["forward_s"]["median_s"] > 0


def test_links(paceline, tmp_path):
    result = paceline("measure", "--links", "--device", "cpu", "--json", str(tmp_path / "links.json"))
    assert result.code == 0, result.err
    links = package.load(tmp_path / "links.json").links
    assert {"process to process, socket", "disk to host"} <= {link.link for link in links}
    assert all(0 < link.latency_s < 1 and link.bandwidth > 1e6 for link in links)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ((), "one of the three"),
        (("mlp", "--links"), "one of the three"),
        (("mlp", "--iterations", "3"), "from 20 to"),
        (("--load", "nowhere"), "no record"),
        (("mlp", "--step", "graph", "--device", "cpu"), "graph"),
    ],
)
def test_wrong_use_gets_one_line(paceline, words, hint):
    result = paceline("measure", *words)
    assert result.code == 2
    (line,) = result.err.splitlines()
    assert hint in line


def test_a_run_is_not_a_measurement(paceline, tmp_path):
    assert paceline("train", "mlp", "--epochs", "1", "--device", "cpu", "--out", str(tmp_path / "run")).code == 0
    result = paceline("measure", "--load", str(tmp_path / "run" / "record.json"))
    assert result.code == 2 and "not a measurement" in result.err


def test_a_directory_that_someone_else_writes_to_is_refused(paceline, tmp_path):
    from paceline.output_directory import claimed

    with claimed(tmp_path / "out"):
        line = paceline("measure", "mlp", "--iterations", "20", "--out", "out").refused()
    assert "--out out belongs to a run that has just started (process " in line
