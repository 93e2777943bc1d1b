"""`paceline simulate --cluster`: tables, curves and records of a strategy on machines, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import paceline as package
from paceline.cluster import Device
from paceline.cost.prediction import Prediction
from paceline.reporting.sections.clusters import cluster_section, cluster_sentence
from paceline.results.records import find_records
from paceline.workload import Workload
from tests.reporting.trace_reading import read_rows

CLUSTER = """
name = "lab"
network = "10 Gb/s Ethernet"

[[machines]]
like = "g2-standard-4"
count = 3

[[machines]]
like = "g2-standard-48"
count = 1
"""

PREDICTION = Prediction(
    "dnn", 64, "L4", "graph", "float32", 0, 1e-3, 0.9e-3, 1.1e-3, {"update": 1e-5}, (), 5e-4, 10**6, 220_200, 55_000,
    "calibrated elsewhere",
)  # fmt: skip


@pytest.fixture(autouse=True)
def asked(monkeypatch, tmp_path_factory) -> list[tuple[Workload, Device]]:
    """What was predicted; a prediction takes no time here and is always the same. This machine is not calibrated."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    seen: list[tuple[Workload, Device]] = []

    def predict(workload: Workload, device: Device) -> Prediction:
        seen.append((workload, device))
        threads = 1 if device.kind == "cpu" else 0
        return replace(PREDICTION, name=workload.network, batch=workload.batch, device=device.name, threads=threads)

    monkeypatch.setattr("paceline.cost.predicting.predict", predict)
    return seen


def test_a_row_for_every_number_of_workers(paceline, asked):
    result = paceline("simulate", "dnn", "--cluster", "g2-standard-4", "--strategy", "sync", "--workers", "1,2,4")
    assert result.code == 0 and result.err == ""
    headline, header, *rows = result.out.splitlines()
    for words in (
        "g2-standard-4",
        "dnn at batch 64 on L4",
        "1.00 ms (900 µs to 1.10 ms; calibrated elsewhere)",
        "sync",
    ):
        assert words in headline
    assert "10 Gb/s Ethernet between machines" in headline and "prices of 2025-07" in headline
    assert header.split()[:4] == ["workers", "machines", "epoch", "samples/s"] and header.endswith("bound by")
    assert [row.split()[0] for row in rows] == ["1", "2", "4"]
    assert "100.0 %" in rows[0] and "860 ms" in rows[0]
    assert [(w.network, d.name) for w, d in asked] == [("dnn", "L4")]


def test_the_record_has_everything(paceline, tmp_path):
    words = ["--cluster", "n1-standard-1 2017", "--strategy", "downpour", "--workers", "3,7"]
    result = paceline("simulate", "dnn", *words, "--full-pass-per-worker", "--seed", 5, "--json", "-")
    assert result.code == 0, result.err
    found = result.json
    assert found["kind"] == "scaling" and found["cluster"] == "n1-standard-1 2017"
    assert found["strategy"]["full_pass_per_worker"] and found["workload"]["seed"] == 5
    (machine,) = found["machines"]
    assert machine["workers_per_machine"] == 1 and machine["prediction"]["iteration_s"] == 1e-3
    assert [(o["workers"], o["machines"]) for o in machine["outcomes"]] == [(3, 4), (7, 8)]
    assert machine["outcomes"][1]["bound"] == "network" and machine["outcomes"][0]["money_per_epoch"] > 0
    assert "every worker's own pass" in result.err


def test_with_a_directory_there_are_curve_and_record(paceline, tmp_path):
    words = ["--cluster", "g2-standard-48", "--strategy", "sync", "--workers", "1,2,4,8"]
    result = paceline("simulate", "dnn", *words, "--out", "curve", "--json", "a.json")
    assert result.code == 0, result.err
    curves = {f"scaling-{what}.{kind}" for what in ("throughput", "epoch-time") for kind in ("png", "svg")}
    assert {path.name for path in (tmp_path / "curve").iterdir()} == {"scaling.json", "trace.json"} | curves
    assert (tmp_path / "curve" / "scaling-throughput.png").read_bytes().startswith(b"\x89PNG")
    assert "ideal" in (tmp_path / "curve" / "scaling-throughput.svg").read_text()
    saved = package.load(tmp_path / "curve" / "scaling.json")
    assert saved == package.load(tmp_path / "a.json")
    assert [o.machines for o in saved.machines[0].outcomes] == [1, 1, 1, 2]  # four GPUs each
    rows = read_rows((tmp_path / "curve" / "trace.json").read_text())
    assert [who for name, who in rows if name == "4 workers on g2-standard-48"] == [f"worker {n}" for n in range(4)]
    assert len(rows) == 1 + 2 + 4 + 8
    again = paceline("simulate", "dnn", *words, "--out", "curve")
    assert "--out curve is not empty" in again.refused()


def test_a_file_s_machines_are_simulated_as_far_as_there_are_any(paceline, tmp_path):
    (tmp_path / "lab.toml").write_text(CLUSTER)
    result = paceline(
        "simulate", "dnn", "--cluster", "lab.toml", "--strategy", "downpour", "--workers", "1,2,3,4,8",
        "--out", "curve", "--json", "a.json",
    )  # fmt: skip
    assert result.code == 0, result.err
    assert "3 workers need 4 × g2-standard-4, there are 3" in result.out
    assert "8 workers need 3 × g2-standard-48, there is 1" in result.out
    small, large = package.load(tmp_path / "a.json").machines
    assert [o.workers for o in small.outcomes] == [1, 2] and [o.workers for o in large.outcomes] == [1, 2, 3, 4]
    assert small.network == "10 Gb/s Ethernet" and large.network == ""


def test_a_report_draws_it_by_number_of_workers(paceline, tmp_path):
    (tmp_path / "lab.toml").write_text(CLUSTER)
    words = [
        "simulate",
        "dnn",
        "--cluster",
        "lab.toml",
        "--strategy",
        "downpour",
        "--workers",
        "1,2,3,4,8",
        "--out",
        "s",
    ]
    assert paceline(*words).code == 0
    result = paceline("report", "s", "--out", "s.html")
    assert result.code == 0 and "1 simulation" in result.out
    records = find_records([tmp_path / "s"])
    (_, made), *others = records.clusters
    assert not others and not records.skipped
    section = cluster_section(records.clusters[0][1], "")
    figure, listing = section.blocks
    assert [row[1] for row in listing.table.rows] == [1, 2, 1, 2, 3, 4]
    fastest = max((o for m in made.machines for o in m.outcomes), key=lambda o: o.samples_per_s)
    assert f"fastest with {fastest.workers} workers on g2-standard-48" in section.sentences[0]
    assert {view.name for view in figure.views} >= {"epoch time", "throughput", "efficiency", "cost per epoch"}
    assert any("8 workers need 3 × g2-standard-48" in point for point in section.points)
    assert section.sentences[0] in (tmp_path / "s.html").read_text()
    nothing = replace(made, machines=tuple(replace(m, outcomes=()) for m in made.machines))
    assert "number of workers fits" in cluster_sentence(nothing) and cluster_section(nothing, "").blocks == ()


def test_epochs_or_steps_are_paid_for_as_a_whole(paceline):
    words = ["simulate", "dnn", "--cluster", "g2-standard-4", "--strategy", "sync", "--workers", "1"]
    epochs = paceline(*words, "--epochs", 10).out
    assert "10 epochs" in epochs and "8.6 s" in epochs and "USD per 10 epochs" in epochs
    steps = paceline(*words, "--steps", 5000).out
    assert "5,000 steps" in steps and "5.0 s" in steps


def test_workers_a_machine_can_be_chosen(paceline):
    words = ["--cluster", "g2-standard-48", "--strategy", "sync", "--workers", "4", "--per-machine", "2", "--json", "-"]
    (machine,) = paceline("simulate", "dnn", *words).json["machines"]
    assert machine["workers_per_machine"] == 2 and machine["outcomes"][0]["machines"] == 2


def test_the_number_of_workers_may_follow_from_groups(paceline):
    words = ["--cluster", "g2-standard-48", "--strategy", "mixed", "--groups", "2x4", "--json", "-"]
    (machine,) = paceline("simulate", "dnn", *words).json["machines"]
    assert [o["workers"] for o in machine["outcomes"]] == [8]


LAB = ["--cluster", "g2-standard-4", "--strategy", "sync"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--cluster", "g2-standrd-4", "--strategy", "sync"], "did you mean g2-standard-4"),
        (["--cluster", "missing.toml", "--strategy", "sync"], "missing.toml: no such file"),
        (["--cluster", "g2-standard-4"], "name a strategy"),
        ([*LAB, "--workers", "two"], "workers='two' should be a whole number"),
        ([*LAB, "--workers", "2,,4"], "e.g. 4,8,12"),
        ([*LAB, "--workers", "0,2"], "workers=0 should be a whole number from 1"),
        ([*LAB, "--workers", "5000"], "5000 workers share 860 batches"),
        ([*LAB, "--compute-time", "1"], "--compute-time follows from the machines of the --cluster"),
        ([*LAB, "--epochs", "2", "--steps", "3"], "--epochs and --steps cannot be combined"),
        ([*LAB, "--epochs", "0"], "--epochs 0 should be from 1 to 1,000,000"),
        ([*LAB, "--per-machine", "0"], "per_machine=0 should be at least 1"),
        (["--strategy", "sync", "--workers", "2,3"], "several numbers need a --cluster"),
        (["--strategy", "sync", "--epochs", "2"], "--epochs needs a --cluster"),
        (["--strategy", "sync", "--per-machine", "2"], "--per-machine needs a cluster"),
        (["--strategy", "sync", "--overlap-backward"], "--overlap-backward needs a cluster"),
        (["--cluster", "vms.csv", "--strategy", "sync"], "vms.csv is not a cluster.toml"),
        (
            ["--cluster", "here", "--strategy", "sync"],
            "run paceline calibrate --local-workers first",
        ),
        ([*LAB, "--overlap-backward"], "the time of the backward pass of dnn is not known"),
        ([*LAB, "--set", "bathc=3"], "no setting 'bathc' for simulate: did you mean batch"),
    ],
)
def test_a_mistake_is_one_line(paceline, options, words, tmp_path):
    assert words in paceline("simulate", "dnn", *options).refused()
    assert list(tmp_path.iterdir()) == []


def test_too_few_machines_are_a_mistake_if_nothing_fits(paceline, tmp_path):
    Path("one.toml").write_text('[[machines]]\nlike = "g2-standard-4"\n')
    result = paceline("simulate", "dnn", "--cluster", "one.toml", "--strategy", "sync", "--workers", "2,4")
    assert result.refused() == "2 workers need 2 × g2-standard-4, there is 1"


def test_a_device_that_cannot_be_predicted_is_one_line(paceline, monkeypatch):
    from paceline.errors import InputError

    def predict(workload, device):
        raise InputError(f"no {device.kind} was calibrated that {device.name} could be compared with")

    monkeypatch.setattr("paceline.cost.predicting.predict", predict)
    assert "no gpu was calibrated" in paceline("simulate", "dnn", *LAB).refused()


def test_without_a_cluster_own_passes_are_simulated_too(paceline):
    words = [
        "simulate",
        "dnn",
        "--strategy",
        "downpour",
        "--workers",
        "3",
        "--steps",
        "10",
        "--full-pass-per-worker",
        "--json",
        "-",
    ]
    found = paceline(*words).json
    assert (
        found["kind"] == "simulation"
        and found["steps"] == 30
        and found["distribution"]["strategy"]["full_pass_per_worker"]
    )


def test_compressed_payloads_are_much_faster_between_machines_with_a_slow_network(paceline, asked):
    words = ["--cluster", "n1-standard-1 2017", "--workers", "4", "--fetch-every", "20", "--json", "-"]
    times = {}
    for name in ("delay-compensated", "compressed"):
        (machine,) = paceline("simulate", "alexnet", "--strategy", name, *words).json["machines"]
        times[name] = machine["outcomes"][0]["step_s"] - machine["prediction"]["iteration_s"]
    assert times["compressed"] < times["delay-compensated"] / 3
