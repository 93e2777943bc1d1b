"""`paceline simulate`, and the options of a strategy: what they do and what is refused, in one line each."""

from __future__ import annotations

import json

import pytest

import paceline as package
from tests.report.trace_reading import read_rows

SMALL = ["--workers", "4", "--steps", "10"]


def test_it_prints_time_throughput_waiting_and_staleness(paceline, tmp_path):
    result = paceline("simulate", "dnn", "--strategy", "downpour", *SMALL, "--json", tmp_path / "time.json")
    assert result.code == 0 and result.err == ""
    for word in ("virtual time", "steps", "updates", "waiting", "staleness"):
        assert word in result.out
    record = json.loads((tmp_path / "time.json").read_text())
    assert record["kind"] == "simulation" and record["seconds"] == 10.0
    assert record["steps_per_s"] == record["updates_per_s"] == 4.0
    assert record["staleness"] == {"0": 1, "1": 1, "2": 1, "3": 37}
    assert (record["mean_staleness"], record["staleness_p99"]) == (pytest.approx(2.85), 3)


def test_a_bandwidth_takes_the_network_s_size(paceline, tmp_path):
    arguments = ["simulate", "dnn", "--strategy", "sync", *SMALL, "--json", "-"]
    slow = json.loads(paceline(*arguments, "--bandwidth", "1e6").out)
    assert slow["message_bytes"] == 4 * 8970
    assert slow["seconds"] > json.loads(paceline(*arguments).out)["seconds"]


def test_with_a_directory_there_are_record_and_trace(paceline, tmp_path):
    result = paceline("simulate", "dnn", "--strategy", "downpour", *SMALL, "--out", "time", "--server-time", "0.1")
    assert result.code == 0 and "record and trace: time" in result.out
    assert package.load(tmp_path / "time").steps == 40
    rows = read_rows((tmp_path / "time" / "trace.json").read_text())
    assert list(rows) == [("time", "server"), *(("time", f"worker {n}") for n in range(4))]
    assert sum(length for _, _, length, _ in rows["time", "worker 3"]) == pytest.approx(10e6)
    assert "--out time is not empty" in paceline("simulate", "dnn", "--strategy", "sync", "--out", "time").refused()


def test_the_trace_of_a_large_cluster_stays_small(paceline, tmp_path):
    words = ["--workers", "3000", "--steps", "3", "--compute-time", "gamma:100:0.01"]
    assert paceline("simulate", "dnn", "--strategy", "downpour", *words, "--out", "large").code == 0
    text = (tmp_path / "large" / "trace.json").read_text()
    assert len(text) < 2_000_000 and len(read_rows(text)) > 1_000


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--strategy", "down"], "did you mean downpour?"),
        ([], "name a --strategy"),
        (["--strategy", "mixed", "--groups", "3x2", "--workers", "4"], "--groups 3x2 are 6 workers, not 4"),
        (["--strategy", "mixed", "--groups", "3", "--workers", "4"], "3 groups do not divide 4 workers"),
        (["--strategy", "mixed", "--groups", "axb"], "--groups 'axb'"),
        (["--strategy", "sync", "--bound", "2"], "a bound is for asynchronous workers"),
        (["--strategy", "downpour", "--spares", "1"], "spares are for one synchronous group"),
        (["--strategy", "backup", "--workers", "2", "--spares", "2"], "leave none of 2 workers"),
        (["--strategy", "downpour", "--period", "5"], "--period is for exchanging parameters"),
        (
            ["--strategy", "sync", "--groups", "2x2"],
            "sync is one group of all workers: for groups=2 use the strategy mixed",
        ),
        (["--strategy", "towers", "--strategy-set", "groups=2"], "use the strategy mixed"),
        (["--strategy", "sync", "--strategy-set", "groups=none"], "for groups of one use delay-compensated"),
        (["--strategy", "sync", "--compensation", "adaptive:2"], "with sync none is late: use the strategy delay-comp"),
        (["--strategy", "backup", "--correction", "staleness"], "correction=staleness is for late payloads"),
        (["--strategy", "local-sgd", "--period", "0"], "period=0 should be a whole number of at least 1"),
        (["--strategy", "easgd", "--period", "-3"], "period=-3 should be a whole number of at least 1"),
        (["--strategy", "downpour", "--compensation", "staleness"], "constant:LAMBDA or adaptive:LAMBDA"),
        (["--strategy", "downpour", "--compensation", "adaptive:2", "--correction", "none"], "exclude each other"),
        (["--strategy", "easgd", "--compensation", "adaptive:2"], "a correction is for gradients"),
        (["--strategy", "downpour", "--server-optimizer", "adagard:1"], "did you mean adagrad"),
        (["--strategy", "downpour", "--compute-time", "gamma:1"], "gamma:SHAPE:SCALE"),
        (["--strategy", "downpour", "--strategy-set", "warmstart=3"], "did you mean warm_start"),
        (["--strategy", "downpour", "--strategy-set", "warm_start=x"], "a whole number"),
        (["--strategy", "downpour", "--speeds", "1,x"], "--speeds '1,x'"),
        (["--strategy", "downpour", "--change", "0:sleeps:3"], "unknown"),
        (["--strategy", "downpour", "--change", "9:dies:3"], "change 9:dies:3: there is no worker 9, only 0 to 1"),
        (["--strategy", "downpour", "--change", "2:leaves:3"], "there is no worker 2"),
        (
            ["--strategy", "downpour", "--change", "1:dies:3", "--change", "1:joins:5"],
            "change 1:dies:3: worker 1 is not there before 5 s",
        ),
        (["--strategy", "downpour", "--workers", "0"], "workers=0 should be at least 1"),
        (["--strategy", "downpour", "--steps", "0"], "steps=0 should be at least 1"),
        (["--strategy", "softsync", "--strategy-set", "softness=9"], "softness=9 is more than 2 workers"),
        (["--strategy", "downpour", "--correction", "no_such:thing"], "no module 'no_such'"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(paceline, options, words):
    result = paceline("simulate", "dnn", *options)
    assert result.code == 2 and result.out == ""
    assert words in result.err and len(result.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--workers", "3"], "--workers needs a --strategy"),
        (["--driver", "virtual"], "--driver needs a --strategy"),
        (["--strategy", "downpour", "--driver", "ray"], "known: local, virtual"),
        (["--strategy", "downpour", "--compute-time", "1"], "--compute-time is simulated"),
        (["--strategy", "downpour", "--driver", "virtual", "--worker-timeout", "3"], "for real workers"),
        (["--shards", "2"], "--shards needs a --strategy"),
        (["--strategy", "sync", "--shards", "0"], "shards=0 should be a whole number of at least 1"),
        (["--strategy", "sync", "--shards", "-2"], "shards=-2 should be a whole number of at least 1"),
        (["--strategy", "sync", "--shards", "99999"], "shards=99999 are too many for"),
        (["--strategy", "sync", "--driver", "virtual", "--shards", "2"], "they need --driver local"),
        (["--strategy", "downpour", "--step", "plain"], "for training in one process"),
        (["--strategy", "downpour", "--driver", "virtual", "--on-bad-gradient", "shrug"], "skip or stop"),
        (["--strategy", "downpour", "--driver", "virtual", "--change", "4:dies:1"], "there is no worker 4"),
        (["--strategy", "sync", "--driver", "virtual", "--workers", "999"], "999 workers share 23 batches"),
    ],
)
def test_a_mistake_in_distributed_training_is_one_too(paceline, options, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = paceline("train", "dnn", "--data", "digits", *options)
    assert result.code == 2
    assert words in result.err and len(result.err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_events_cannot_be_recorded_from_the_middle_of_a_run(paceline):
    result = paceline("train", "--resume", "run", "--record-events")
    assert result.refused() == "--record-events is for new runs: a resumed one goes on as it was"


def test_a_worker_beyond_the_first_may_join(paceline):
    joins = ["--change", "2:joins:3", "--change", "2:dies:5"]
    for name in ("sync", "downpour", "mixed"):
        arguments = ["simulate", "dnn", "--strategy", name, "--workers", 2, "--steps", 10, *joins, "--json", "-"]
        found = paceline(*arguments).json["distribution"]
        assert found["ledger"]["applied"] == 20
        assert [worker["lives"] for worker in found["by_worker"]] == [1, 1, 2]


def test_training_in_virtual_time_leaves_a_run_like_any_other(paceline, tmp_path):
    out = tmp_path / "run"
    result = paceline(
        "train", "dnn", "--data", "digits", "--epochs", 2, "--strategy", "mixed", "--groups", "2x2",
        "--driver", "virtual", "--compute-time", "gamma:100:0.01", "--compensation", "adaptive:2", "--out", out,
    )  # fmt: skip
    assert result.code == 0, result.err
    assert "epoch 2/2" in result.out and "4 virtual workers" in result.out
    record = json.loads((out / "record.json").read_text())
    found = record["distribution"]
    assert found["driver"] == "virtual" and len(found["by_worker"]) == 4
    assert all(worker["samples"] > 0 and worker["accuracy"] > 0 for worker in found["by_worker"])
    assert [point["epoch"] for point in found["points"]] == [1, 2]
    assert found["points"][0]["seconds"] < found["points"][1]["seconds"] == found["seconds"]
    assert {span["what"] for span in record["trace"]["spans"]} == {"compute"}
    assert (out / "summary.html").exists()
    assert paceline("evaluate", out).code == 0
    again = paceline("train", "--resume", out)
    assert again.code == 2 and "start it again" in again.err


def test_a_payload_that_is_no_number_ends_the_run_or_is_skipped(paceline, tmp_path):
    arguments = [
        "train", "dnn", "--data", "digits", "--epochs", 1, "--strategy", "downpour", "--driver", "virtual",
        "--workers", 3, "--optimizer", "sgd", "--lr", "1e30", "--set", "activation=relu",
    ]  # fmt: skip
    stopped = paceline(*arguments, "--out", tmp_path / "a")
    assert stopped.code == 1 and "worker" in stopped.err and "step" in stopped.err and "not finite" in stopped.err
    skipped = paceline(*arguments, "--on-bad-gradient", "skip", "--out", tmp_path / "b")
    assert skipped.code == 0
    ledger = json.loads((tmp_path / "b" / "record.json").read_text())["distribution"]["ledger"]
    assert ledger["refused"] > 0 and ledger["applied"] + ledger["refused"] == 23
