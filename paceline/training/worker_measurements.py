"""Reads what the clocks of a run's workers have written."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from paceline import record

if TYPE_CHECKING:  # a run that is not measured imports nothing of measuring
    from paceline.measurement.measurement import Measurement

LONGEST_WAIT_S = 3.0


def file_of(directory: Path, worker: int) -> Path:
    return directory / f"worker-{worker}.json"


def wait_for_clocks(directory: Path, workers: int) -> None:
    """Gives the workers, which all wait for tasks at the end, a moment to write."""
    done = time.time()
    while time.time() < done + LONGEST_WAIT_S:
        files = [file_of(directory, worker) for worker in range(workers)]
        if all(file.exists() and file.stat().st_mtime >= done for file in files):
            return
        time.sleep(0.05)


def worker_measurements(directory: Path, workers: int) -> dict[int, Measurement]:
    """By worker; one with too few tasks to sample has none."""
    files = {worker: file_of(directory, worker) for worker in range(workers)}
    return {worker: record.load(file) for worker, file in files.items() if file.exists()}
