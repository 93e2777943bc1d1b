"""`train --shards`: a server of several processes, from the command line."""

from __future__ import annotations

import pytest

SETTINGS = ("dnn", "--data", "digits", "--batch", "64", "--device", "cpu", "--threads", "1")


@pytest.mark.slow
def test_shards_are_recorded_and_may_change_when_a_run_goes_on(paceline):
    how = ("--strategy", "delay-compensated", "--shards", "2")
    first = paceline("train", *SETTINGS, "--epochs", "1", *how, "--out", "a", "--json", "-")
    assert first.code == 0, first.err
    assert first.json["distribution"]["shards"] == 2
    assert first.json["distribution"]["ledger"]["applied"] == 23
    assert "2 workers with 1 thread each and 2 server shards share" in first.err or "cores" not in first.err
    assert paceline("train", "--resume", "a", "--shards", "0").refused().startswith("shards=0 should be a whole number")
    again = paceline("train", "--resume", "a", "--epochs", "2", "--shards", "1", "--json", "-")
    assert again.code == 0, again.err
    assert again.json["distribution"]["shards"] == 1
    assert again.json["distribution"]["ledger"]["applied"] == 46


def test_a_run_in_one_process_has_no_shards(paceline, trained):
    said = paceline("train", "--resume", trained, "--shards", "2").refused()
    assert said == f"--shards are processes of a server, which the run in {trained} does not have"


@pytest.mark.parametrize("command", ["train", "compare"])
def test_a_correction_of_whole_vectors_is_refused_in_one_line(paceline, tmp_path, monkeypatch, command):
    (tmp_path / "my_clipping.py").write_text("def clipped(g, w, backup, staleness, state):\n    return g / g.norm()\n")
    monkeypatch.syspath_prepend(tmp_path)
    if command == "train":
        options = ["--strategy", "downpour", "--correction", "my_clipping:clipped", "--shards", "2"]
        said = paceline("train", *SETTINGS, *options).refused()
    else:
        (tmp_path / "study.toml").write_text(
            '[workload]\nnetwork = "dnn"\ndata = "digits"\n'
            '[strategy]\nstrategy = "downpour"\ncorrection = "my_clipping:clipped"\nshards = 2\n'
        )
        said = paceline("compare", "study.toml").refused()
    assert "shards=2: correction my_clipping:clipped is given whole vectors" in said
