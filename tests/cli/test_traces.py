"""The trace that every run keeps for Perfetto: in one process, with real workers and with simulated ones."""

from __future__ import annotations

import pytest

from tests.reporting.trace_reading import read_rows

SMALL = ["--data", "digits:300", "--epochs", "2", "--batch", "50", "--device", "cpu", "--threads", "1"]


def test_a_run_in_one_process_is_one_row(paceline, tmp_path):
    assert paceline("train", "mlp", *SMALL, "--out", "run").code == 0
    (((name, who), row),) = read_rows((tmp_path / "run" / "trace.json").read_text()).items()
    assert (name, who) == ("run", "main")
    assert [event[3] for event in row if event[0] == "train"] == ["epoch 1", "epoch 2"]
    assert [event[0] for event in row].count("validate") == 2


@pytest.mark.parametrize("driver", [pytest.param("local", marks=pytest.mark.slow), "virtual"])
def test_every_worker_has_a_row_of_its_own(paceline, tmp_path, driver):
    words = ["--strategy", "delay-compensated", "--workers", "3", "--driver", driver, "--out", "run"]
    assert paceline("train", "dnn", *SMALL, *words).code == 0
    rows = {who: row for (_, who), row in read_rows((tmp_path / "run" / "trace.json").read_text()).items()}
    assert [who for who in rows if who.startswith("worker")] == ["worker 0", "worker 1", "worker 2"]
    assert all(any(event[0] == "compute" for event in rows[f"worker {number}"]) for number in range(3))
    assert ("main" in rows) == (driver == "local")  # what this process did is not on the simulated clock
