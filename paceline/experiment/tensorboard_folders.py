"""Where the runs of an experiment write their events for TensorBoard: each a folder, named by what distinguishes it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from paceline.errors import InputError
from paceline.experiment.planning import PlannedRun

LONGEST = 120


def folder_of(run: PlannedRun, directory: Path) -> Path | None:
    """`sync,8-workers-1a2b3c4d5e-1`, which a filter finds by any part; only a training has curves."""
    if run.kind != "train":
        return None
    words = (run.label or run.workload.network).replace(" · ", ",")
    return directory / f"{re.sub(r'[^A-Za-z0-9.,=_+]+', '-', words)[:LONGEST]}-{run.id}"


def check_folders(runs: Iterable[PlannedRun], directory: Path, *, new: bool) -> None:
    """Says before the first run what would keep any from writing."""
    from paceline.reporting.tensorboard import check_unused, check_writable

    check_writable(directory)
    boards = [board for run in runs if (board := folder_of(run, directory)) is not None]
    if not boards:
        raise InputError('`tensorboard` is for runs that train, and none of these does: their kind is not "train"')
    for board in boards if new else ():
        check_unused(board)
