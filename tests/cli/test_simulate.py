"""`paceline simulate`, and the options of a strategy: what they do and what is refused, in one line each."""

from __future__ import annotations

import json

import pytest

import paceline as package
from tests.reporting.trace_reading import read_rows

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


def test_the_batch_is_an_option(paceline):
    given = ("--data", "digits", "--workers", "2", "--steps", "2", "--batch", "7")
    result = paceline("simulate", "dnn", *given, "--json", "-")
    assert result.code == 0 and '"batch": 7' in result.out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--strategy", "down"], "did you mean downpour (or a custom module:name)?"),
        ([], "name a strategy"),
        (["--strategy", "mixed", "--groups", "3x2", "--workers", "4"], "--groups 3x2 are 6 workers, not 4"),
        (["--strategy", "mixed", "--groups", "3", "--workers", "4"], "3 groups do not divide 4 workers"),
        (["--strategy", "mixed", "--groups", "axb"], "--groups axb"),
        (["--strategy", "sync", "--staleness-bound", "2"], "a staleness bound is for asynchronous workers"),
        (["--strategy", "downpour", "--backup-workers", "1"], "backup workers are for one synchronous group"),
        (
            ["--strategy", "backup", "--workers", "2", "--backup-workers", "2"],
            "backup_workers=2 should be less than workers=2",
        ),
        (
            ["--strategy", "downpour", "--period", "5"],
            "--period is for workers with an optimizer of their own; with downpour use --push-every",
        ),
        (
            ["--strategy", "sync", "--groups", "2x2"],
            "sync is one group of all workers: for groups=2 use mixed",
        ),
        (["--strategy", "towers", "--set", "groups=2"], "for groups=2 use mixed"),
        (["--strategy", "sync", "--set", "groups=none"], "for groups=None use delay-compensated"),
        (["--strategy", "sync", "--correction", "adaptive:2"], "with sync none is late: use the strategy delay-comp"),
        (["--strategy", "backup", "--correction", "staleness"], "correction=staleness is for late payloads"),
        (["--strategy", "local-sgd", "--period", "0"], "period=0 should be a whole number of at least 1"),
        (["--strategy", "easgd", "--period", "-3"], "period=-3 should be a whole number of at least 1"),
        (["--strategy", "easgd", "--period", "5", "--push-every", "3"], "--period and --push-every cannot be combined"),
        (
            ["--strategy", "downpour", "--correction", "adaptive"],
            "needs a number of at least 0, for example adaptive:2",
        ),
        (["--strategy", "downpour", "--correction", "adaptiv:2"], "no module 'adaptiv'"),
        (["--strategy", "downpour", "--exchange", "topkk"], "exchange 'topkk' is unknown: did you mean topk"),
        (["--strategy", "downpour", "--exchange", "topk:x"], "needs a number of at least 0, for example topk:0.01"),
        (["--strategy", "downpour", "--exchange", "topk:7"], "should be above 0 and at most 1"),
        (["--strategy", "downpour", "--exchange", "json:dumps"], "not a subclass of paceline.strategy.exch"),
        (["--strategy", "no_such:strategy"], "no module 'no_such'"),
        (["--strategy", "json:JSONDecoder"], "it should be a paceline Strategy"),
        (["--strategy", "downpur"], "no strategy 'downpur': did you mean downpour (or a custom module:name)?"),
        (["--steps", "5"], "name a strategy to simulate, e.g. --strategy downpour, or a number of --workers"),
        (["--strategy", "downpour", "--server-optimizer", "adagard:1"], "did you mean adagrad"),
        (["--strategy", "downpour", "--compute-time", "gamma:1"], "gamma:SHAPE:SCALE"),
        (["--strategy", "downpour", "--set", "warmstart=3"], "did you mean warm_start"),
        (["--strategy", "downpour", "--set", "warm_start=x"], "a whole number"),
        (["--strategy", "downpour", "--speeds", "1,x"], "speeds='1,x' should be a list of numbers above 0"),
        (["--strategy", "downpour", "--change", "0:sleeps:3"], "unknown"),
        (["--strategy", "downpour", "--change", "9:dies:3"], "change 9:dies:3: there is no worker 9, only 0 to 1"),
        (["--strategy", "downpour", "--change", "2:leaves:3"], "there is no worker 2"),
        (
            ["--strategy", "downpour", "--change", "1:dies:3", "--change", "1:joins:5"],
            "change 1:dies:3: worker 1 is not there before 5 s",
        ),
        (["--strategy", "downpour", "--workers", "0"], "workers=0 should be a whole number from 1 to"),
        (["--strategy", "downpour", "--steps", "0"], "steps=0 should be a whole number from 1 to"),
        (["--strategy", "softsync", "--set", "softsync_n=9"], "softsync_n=9 is more than 2 workers"),
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
        (["--driver", "virtual"], "--driver needs --workers or a --strategy, e.g. --strategy downpour"),
        (["--exchange", "int8"], "--exchange needs --workers or a --strategy"),
        (["--validate-every", "often"], "--validate-every often should be like 1epoch, 500updates or 30s"),
        (["--workers", "2", "--staleness-bound", "1"], "with sync all of them wait for each other"),
        (["--strategy", "downpour", "--driver", "slurm"], "known: auto, local, ray, virtual"),
        (["--strategy", "downpour", "--compute-time", "1"], "--compute-time is simulated"),
        (
            ["--strategy", "downpour", "--driver", "virtual", "--idle-timeout", "3"],
            "--idle-timeout is for real workers",
        ),
        (["--strategy", "downpour", "--driver", "virtual", "--collective", "gloo"], "--collective is for real workers"),
        (["--workers", "2", "--driver", "virtual", "--server-threads", "2"], "--server-threads is for real workers"),
        (["--workers", "2", "--server-threads", "0"], "server_threads=0 should be a whole number from 1 to 1,024"),
        (["--workers", "2", "--busy-timeout", "0"], "busy_timeout=0 should be a number above 0"),
        (["--workers", "2", "--collective", "glue"], "collective 'glue' is unknown: did you mean gloo"),
        (["--workers", "2", "--validate-every", "often"], "--validate-every often should be like 1epoch, 500updates"),
        (["--workers", "2", "--validate-every", "0.5updates"], "should be like 1epoch"),
        (["--strategy", "downpour", "--step", "plain"], "for training in one process"),
        (
            ["--strategy", "downpour", "--driver", "virtual", "--on-bad-gradient", "shrug"],
            "on_bad_gradient 'shrug' is unknown: known: skip, stop",
        ),
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
    assert result.refused() == "--record-events is for new runs: a resumed one continues as it was"


def test_a_worker_beyond_the_first_may_join(paceline):
    joins = ["--change", "2:joins:3", "--change", "2:dies:5"]
    for name in ("sync", "downpour", "mixed"):
        arguments = ["simulate", "dnn", "--strategy", name, "--workers", 2, "--steps", 10, *joins, "--json", "-"]
        found = paceline(*arguments).json["distribution"]
        assert found["ledger"]["applied"] == 20
        assert [worker["starts"] for worker in found["by_worker"]] == [1, 1, 2]


def test_training_in_virtual_time_leaves_a_run_like_any_other(paceline, tmp_path):
    out = tmp_path / "run"
    result = paceline(
        "train", "dnn", "--data", "digits", "--epochs", 2, "--strategy", "mixed", "--groups", "2x2",
        "--driver", "virtual", "--compute-time", "gamma:100:0.01", "--correction", "adaptive:2", "--out", out,
    )  # fmt: skip
    assert result.code == 0, result.err
    assert "epoch 2/2" in result.out and "4 virtual workers" in result.out
    record = json.loads((out / "record.json").read_text())
    found = record["distribution"]
    assert found["driver"] == "virtual" and len(found["by_worker"]) == 4
    assert all(worker["samples"] > 0 and worker["accuracy"] > 0 for worker in found["by_worker"])
    assert [point["epoch"] for point in record["points"]] == [1, 2]
    assert record["points"][0]["seconds"] < record["points"][1]["seconds"] == found["seconds"]
    assert {"compute"} <= {span["part"] for span in record["trace"]["spans"]}
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


SLOW = ("--workers", "4", "--steps", "40", "--bandwidth", "1e6", "--compute-time", "0.01", "--fetch-every", "20")


def test_compressed_payloads_are_much_faster_over_a_slow_link(paceline):
    whole, compressed = (
        paceline("simulate", "dnn", "--data", "digits", "--strategy", name, *SLOW, "--json", "-").json
        for name in ("delay-compensated", "compressed")
    )
    assert whole["push_bytes"] == whole["message_bytes"] == compressed["message_bytes"]
    assert compressed["push_bytes"] < whole["push_bytes"] / 40
    assert compressed["seconds"] < whole["seconds"] / 3
    shown = paceline("simulate", "dnn", "--data", "digits", "--strategy", "compressed", *SLOW).out
    assert "messages" in shown and "push" in shown


def test_workers_without_a_strategy_are_synchronous(paceline):
    found = paceline("simulate", "dnn", "--workers", "3", "--json", "-").json
    assert found["distribution"]["strategy"]["name"] == "sync" and found["distribution"]["workers"] == 3


def test_a_period_is_of_pushes_and_of_fetches_where_there_are_any(paceline):
    for name, fetches in (("local-sgd", 7), ("diloco", 7), ("easgd", 0)):
        words = ("--strategy", name, "--period", "7", "--json", "-")
        strategy = paceline("simulate", "dnn", *words).json["distribution"]["strategy"]
        assert (strategy["push_every"], strategy["fetch_every"]) == (7, fetches)


def test_a_strategy_of_the_user_is_found_by_module_and_name(paceline, tmp_path, monkeypatch):
    (tmp_path / "my_strategies.py").write_text(
        "from paceline import Strategy\n"
        'rare = Strategy("rare", groups=None, exchange="topk:0.1", fetch_every=5)\n'
        "def often():\n    return rare.with_changes(fetch_every=2)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    for name, fetches in (("rare", 5), ("often", 2)):
        words = ("--strategy", f"my_strategies:{name}", "--backup-workers", "0", "--json", "-")
        found = paceline("simulate", "dnn", *words).json["distribution"]["strategy"]
        assert found["name"] == "rare" and found["fetch_every"] == fetches


def test_a_directory_that_someone_else_writes_to_is_refused(paceline, tmp_path):
    from paceline.output_directory import claimed

    with claimed(tmp_path / "out"):
        line = paceline("simulate", "mlp", "--strategy", "sync", "--workers", "2", "--out", "out").refused()
    assert "--out out belongs to a run that has just started (process " in line
