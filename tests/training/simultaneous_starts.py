"""Starts pairs of runs on one directory at the same moment: PLACE PAIRS new|resume. Prints a JSON row for each pair.

A program of its own, so that runs are forked from a process that has PyTorch but has not used it.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from pathlib import Path

from paceline.errors import PacelineError
from paceline.training.trainer import resume, run
from paceline.training.watcher import Silent
from paceline.workload import resolve

WORKLOAD = resolve("mlp", {"data": "digits", "epochs": 1, "threads": 1})


class UntilTheOtherIsDone(Silent):
    """Keeps the winner running until the other start has ended, however slow the machine is."""

    def __init__(self, other: Path) -> None:
        self.other = other

    def begun(self, *_: object) -> None:
        deadline_s = time.monotonic() + 120
        while not self.other.exists() and time.monotonic() < deadline_s:
            time.sleep(0.005)


def start(kind: str, directory: Path, own: Path, other: Path, gate: int) -> None:
    os.read(gate, 1)  # returns when the parent closes the other end, for both at once
    watcher = UntilTheOtherIsDone(other)
    try:
        if kind == "new":
            run(WORKLOAD, out=directory, watcher=watcher)
        else:
            resume(directory, changes={"epochs": 2}, watcher=watcher)
        told = "won"
    except PacelineError as error:
        told = str(error)
    temporary = own.with_suffix(".tmp")
    temporary.write_text(told)
    temporary.rename(own)


def pair(kind: str, directory: Path) -> dict[str, object]:
    told = [directory.with_suffix(".a"), directory.with_suffix(".b")]
    gate, opened = os.pipe()
    children = []
    for own, other in (told, told[::-1]):
        child = os.fork()
        if child == 0:
            os.close(opened)
            try:
                start(kind, directory, own, other, gate)
            finally:
                os._exit(0)
        children.append(child)
    os.close(gate)
    os.close(opened)
    for child in children:
        os.waitpid(child, 0)
    return {"directory": str(directory), "pids": children, "told": [place.read_text() for place in told]}


def main(place: Path, pairs: int, kind: str) -> None:
    if kind == "resume":  # in a process of its own: what is forked later must not have used PyTorch's threads
        child = os.fork()
        if child == 0:
            run(WORKLOAD, out=place / "first")
            os._exit(0)
        os.waitpid(child, 0)
    for number in range(pairs):
        directory = place / f"run-{number}"
        if kind == "resume":
            shutil.copytree(place / "first", directory)
        print(json.dumps(pair(kind, directory)), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
