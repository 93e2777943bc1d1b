"""Runs one command line in a process forked from a server that has imported everything, and watches it end."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path

from paceline.fork_server import ForkServer

PRELOAD = (
    "torch", "paceline.cli.train", "paceline.training.trainer", "paceline.reporting", "paceline.planning.planning",
    "paceline.cost.predicting", "paceline.simulation.scaling", "paceline.experiment", "paceline.measurement.measuring",
    "paceline.api.simulate", "sklearn.datasets", "tests.fuzz.child",
)  # fmt: skip
CPU_LIMIT_S, WALL_LIMIT_S = 20, 120
"""A machine with other work to do gives little time; what a command computes is what counts."""
HUNG = -1000
CRASHED = 99


@dataclass(frozen=True)
class Ending:
    code: int
    out: str
    err: str
    processes: tuple[str, ...]
    """Command lines of processes that were left."""


def run_command(server: ForkServer, arguments: tuple[str, ...], directory: Path, logs: Path) -> Ending:
    out, err = logs / "out", logs / "err"
    with out.open("wb") as o, err.open("wb") as e:
        task = json.dumps([list(arguments), str(directory), str(logs)])
        child = server.fork("tests.fuzz.child:run", task, [o.fileno(), e.fileno()])
    deadline_s = time.monotonic() + WALL_LIMIT_S
    while (ended := child.poll()) is None and time.monotonic() < deadline_s:
        server.wait(0.5)
    if ended is None:
        child.kill()
    left = _left(child.process_id)
    texts = [path.read_text(errors="replace") for path in (out, err)]
    return Ending(HUNG if ended is None or ended.code == -24 else ended.code, *texts, left)


def run(task: str, descriptors: list[int]) -> None:
    """In the forked process."""
    arguments, directory, home = json.loads(task)
    os.setsid()  # so that what it leaves behind can be told apart
    for number, descriptor in enumerate(descriptors, start=1):
        os.dup2(descriptor, number)
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_LIMIT_S, CPU_LIMIT_S + 1))
    os.environ.update(HOME=home, XDG_CACHE_HOME=home, COLUMNS="200")
    os.chdir(directory)
    from paceline.cli import main
    from paceline.measurement import layer_clock, measured_step

    for user in (layer_clock, measured_step):  # measuring the cost of marks takes a second
        user.mark_cost_s = lambda: dict.fromkeys(("edge", "around", "module", "node"), 1e-6)
    code = CRASHED
    try:
        code = main(arguments)
    except BaseException:
        traceback.print_exc()
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def _left(session: int) -> tuple[str, ...]:
    """Processes of a session that are still there after a moment; its fork server ends when it notices."""
    for _ in range(50):
        found = _processes(session)
        if not found:
            return ()
        time.sleep(0.1)
    return found


def _processes(session: int) -> tuple[str, ...]:
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError, IndexError):
            words = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            if entry.name.isdigit() and int(words[3]) == session and words[0] != "Z":
                found.append((entry / "cmdline").read_text().replace("\0", " ") or entry.name)
    return tuple(found)
