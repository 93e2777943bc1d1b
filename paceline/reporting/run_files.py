"""What is made of a run's record and kept beside it: a summary page, a trace for Perfetto, and what was measured."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from paceline.record import write_atomically
from paceline.reporting.chrome_trace import TRACE, chrome_trace
from paceline.reporting.page import write_summary
from paceline.training.run import Run

if TYPE_CHECKING:
    from paceline.training.measured_training import TrainingClock

MEASURED = "measure"


def write_run_files(run: Run, directory: Path) -> Path:
    """Page and trace, into the run's directory; the path of the page."""
    write_atomically(directory / TRACE, chrome_trace(run.trace, directory.resolve().name))
    return write_summary(run, directory)


def write_measured(run: Run, directory: Path, clock: TrainingClock | None) -> None:
    """What the clock of this process or those of the workers found, as tables, traces and plots."""
    from paceline.reporting.experiment_table import experiment_of_run
    from paceline.reporting.measurement_files import write_measurement
    from paceline.training.worker_measurements import worker_measurements

    if clock is not None:
        *_, place = measured_folders(directory, new=True)
        write_measurement(clock.measurement(), place, experiment_of_run(run, clock.quarters, directory))
    elif run.distribution is not None and (directory / MEASURED).is_dir():
        for worker, found in worker_measurements(directory / MEASURED, run.distribution.workers).items():
            write_measurement(found, directory / MEASURED / f"worker-{worker}")


def measured_folders(directory: Path, *, new: bool = False) -> list[Path]:
    """`measure`, and `measure-2`, ... of what was measured since the run was resumed; a `new` one comes last."""
    found: list[Path] = []
    for number in count(1):
        place = directory / (MEASURED if number == 1 else f"{MEASURED}-{number}")
        if not place.exists():
            return [*found, place] if new else found
        found.append(place)
    raise AssertionError("not reached")
