"""`train --server-threads` and the other options of real workers, from the command line."""

from __future__ import annotations

SETTINGS = ("dnn", "--data", "digits", "--batch", "64", "--device", "cpu", "--threads", "1")


def test_threads_of_the_server_are_recorded_and_may_change_when_a_run_is_resumed(paceline):
    how = ("--strategy", "delay-compensated", "--server-threads", "2")
    first = paceline("train", *SETTINGS, "--epochs", "1", *how, "--out", "a", "--json", "-")
    assert first.code == 0, first.err
    assert first.json["distribution"]["server_threads"] == 2
    assert first.json["distribution"]["ledger"]["applied"] == 23
    assert (
        paceline("train", "--resume", "a", "--server-threads", "0").refused().startswith("server_threads=0 should be")
    )
    again = paceline("train", "--resume", "a", "--epochs", "2", "--server-threads", "1", "--json", "-")
    assert again.code == 0, again.err
    assert again.json["distribution"]["server_threads"] == 1
    assert again.json["distribution"]["ledger"]["applied"] == 46


def test_a_run_in_one_process_has_no_server(paceline, trained):
    said = paceline("train", "--resume", trained, "--server-threads", "2").refused()
    assert said == f"--server-threads is for distributed runs, and the one in {trained} is of one process"


def test_workers_without_a_strategy_are_synchronous_and_validated_as_often_as_asked(paceline):
    how = ("--workers", "2", "--validate-every", "5updates", "--idle-timeout", "60", "--batch", "8")
    found = paceline("train", *SETTINGS, "--epochs", "2", *how, "--out", "b", "--json", "-")
    assert found.code == 0, found.err
    distribution = found.json["distribution"]
    assert distribution["strategy"]["name"] == "sync" and distribution["workers"] == 2
    assert len(found.json["points"]) > 2 and found.json["points"][-1]["epoch"] == 2
