"""What is made of a run's record and kept beside it: a summary page, and a trace for Perfetto."""

from __future__ import annotations

from pathlib import Path

from paceline.record import write_atomically
from paceline.reporting.chrome_trace import TRACE, chrome_trace
from paceline.reporting.page import write_summary
from paceline.training.run import Run


def write_run_files(run: Run, directory: Path) -> Path:
    """Both, into the run's directory; the path of the page."""
    write_atomically(directory / TRACE, chrome_trace(run.trace, directory.resolve().name))
    return write_summary(run, directory)
