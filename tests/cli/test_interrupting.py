"""Ctrl-C stops a run in good order: it says how to go on, and going on works."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import paceline as package
from tests.own_process import OwnProcess, program

LONG = [
    "train",
    "lenet5",
    "--data",
    "digits",
    "--epochs",
    "500",
    "--device",
    "cpu",
    "--threads",
    "1",
    "--out",
    "run",
]


@pytest.fixture
def started(tmp_path: Path) -> Iterator[OwnProcess]:
    """A long run in a process of its own that has finished its first epoch."""
    with program(*LONG, cwd=tmp_path) as process:
        assert any(line.startswith("epoch 1/500") for line in process.stdout), process.stderr.read()
        yield process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_in_good_order_and_the_run_goes_on(started, tmp_path, paceline, number):
    time.sleep(0.1)
    started.send_signal(number)
    _, err = started.communicate()
    assert started.returncode == 130
    (line,) = err.splitlines()
    assert line.startswith("paceline: stopped in epoch ") and line.endswith(
        "continue with: paceline train --resume run"
    )
    before = package.load(tmp_path / "run")
    assert before.status == "interrupted" and 1 <= len(before.epochs) < 500
    assert sorted(p.name for p in (tmp_path / "run").iterdir() if p.suffix != ".html") == [
        "checkpoint.pt",
        "record.json",
        "trace.json",
    ]

    # As the line says, with an end that is near.
    epochs = len(before.epochs) + 1
    result = paceline("train", "--resume", "run", "--epochs", str(epochs))
    assert result.code == 0, result.err
    assert f"resuming after {len(before.epochs)} epoch" in result.out
    after = package.load(tmp_path / "run")
    assert after.status == "finished" and after.resumed == 1
    assert after.epochs[: len(before.epochs)] == before.epochs
    assert [epoch.epoch for epoch in after.epochs] == list(range(1, epochs + 1))
    assert after.updates == epochs * -(-1437 // 64)


def test_ctrl_c_while_the_program_starts_ends_it_in_one_line():
    program = """
import sys
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "paceline.cli.console":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupting())
import paceline.cli
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (130, "paceline: interrupted\n")
