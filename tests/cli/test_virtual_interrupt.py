"""Ctrl-C in the middle of a virtual run: one line, exit code 130, and a record that says so."""

from __future__ import annotations

import json
import signal
import time

from tests.own_process import program


def test_ctrl_c_ends_a_virtual_run_in_good_order(tmp_path):
    out = tmp_path / "run"
    how = ("--strategy", "downpour", "--driver", "virtual", "--workers", "4", "--out", out)
    with program("train", "dnn", "--data", "digits", "--epochs", "100000", *how) as process:
        deadline_s = time.monotonic() + 60
        while not (out / "checkpoint.pt").exists():
            assert time.monotonic() < deadline_s and process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate()
        assert process.returncode == 130
    assert len(error.splitlines()) == 1 and "virtual seconds" in error
    assert json.loads((out / "record.json").read_text())["status"] == "interrupted"
