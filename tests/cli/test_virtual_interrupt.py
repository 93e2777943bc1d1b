"""Ctrl-C in the middle of a virtual run: one line, exit code 130, and a record that says so."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time


def test_ctrl_c_ends_a_virtual_run_in_good_order(tmp_path):
    out = tmp_path / "run"
    command = [
        sys.executable, "-m", "paceline", "train", "dnn", "--data", "digits", "--epochs", "100000", "--strategy",
        "downpour", "--driver", "virtual", "--workers", "4", "--out", str(out),
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline_s = time.monotonic() + 60
    while not (out / "checkpoint.pt").exists():
        assert time.monotonic() < deadline_s and process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert len(error.splitlines()) == 1 and "virtual seconds" in error
    assert json.loads((out / "record.json").read_text())["status"] == "interrupted"
