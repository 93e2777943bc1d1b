"""Kills during a run on MNIST: does it end by itself, counts every batch once, and learn as much as undisturbed?"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.options import Options, digits_of_28
from benchmarks.table import show, show_table
from paceline.strategy.presets import find_strategy
from paceline.strategy.strategy import Strategy
from paceline.testing import random_kills
from paceline.training.drivers.local import launcher
from paceline.workload import Workload, resolve

BAR_POINTS = 0.5


@dataclass(frozen=True)
class Case:
    strategy: Strategy
    workers: int
    epochs: int
    of_workers: int
    of_server: int = 0


CASES = (
    Case(find_strategy("downpour"), 2, 80, 50, 5),
    Case(find_strategy("delay-compensated"), 2, 80, 50, 5),
    Case(find_strategy("sync"), 2, 40, 5),
    Case(find_strategy("mixed"), 4, 40, 5),
    Case(find_strategy("local-sgd", push_every=20, fetch_every=20), 2, 40, 5),
)
"""Trained to the end, where asynchronous runs that met their payloads in another order have learnt the same."""


def workload(epochs: int, samples: int) -> Workload:
    settings = {
        "data": digits_of_28(samples), "epochs": epochs, "dropout": 0.0, "l2": 0.0, "optimizer": "sgd", "lr": 0.1,
        "schedule": "cosine", "device": "cpu",
    }  # fmt: skip
    return resolve("dnn", settings)


def left_behind() -> int:
    """Processes and shared memory of ours that are still there, without the server that forks them: it ends with us."""
    children = 0
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            try:
                status = (place / "stat").read_text().rsplit(")", 1)[1].split()
                command = (place / "cmdline").read_text()
                children += int(status[1]) == os.getpid() and "paceline" in command and "fork_server" not in command
            except OSError:
                continue
    return children + Path("/proc/self/maps").read_text().count("paceline-parameters")


def run(options: Options) -> dict[str, Any]:
    rows, found = [], {}
    for case in CASES:
        made = workload(2 if options.quick else case.epochs, 6_400 if options.quick else 60_000)
        calm = launcher.run(made, case.strategy, workers=case.workers)
        kills = random_kills(
            workers=case.workers, updates=int(0.9 * calm.updates), of_workers=case.of_workers, of_server=case.of_server
        )
        start_s = perf_counter()
        hit = launcher.run(made, case.strategy, workers=case.workers, faults=kills)
        seconds = perf_counter() - start_s
        assert hit.distribution is not None
        ledger, whats = hit.distribution.ledger, [fault.what for fault in hit.distribution.faults]
        batches = -(-len_of(made) // made.batch)
        once = ledger.applied_by_epoch == (batches,) * made.epochs
        points = 100 * (hit.test_accuracy - calm.test_accuracy)
        good = once and abs(points) <= BAR_POINTS and not left_behind() and hit.status == "finished"
        rows.append([
            case.strategy.name, f"{whats.count('died')} + {whats.count('server died')}",
            f"{ledger.applied:,} of {batches * made.epochs:,}", str(ledger.returned),
            f"{100 * calm.test_accuracy:.2f} %", f"{100 * hit.test_accuracy:.2f} %", f"{seconds:.0f} s",
            str(left_behind()), "PASS" if good else "missed",
        ])  # fmt: skip
        show(" ".join(rows[-1]))
        found[case.strategy.name] = rows[-1]
    show_table(
        "Random SIGKILLs of workers + server",
        [
            "strategy",
            "kills",
            "batches applied once",
            "given again",
            "calm",
            "hit",
            "time",
            "left",
            f"±{BAR_POINTS} points",
        ],
        rows,
    )
    return found


def len_of(made: Workload) -> int:
    return int(made.data.rsplit(":", 1)[1])
