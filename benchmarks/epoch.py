"""Seconds an epoch: Paceline's steps beside a DataLoader loop, Lightning Fabric and Accelerate.

Paceline's time holds all that an epoch of a run has: shuffling, feeding, seeding each step, loss and
accuracy. The peers shuffle and train, and count nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from math import ceil
from time import perf_counter
from typing import Any

import torch

from benchmarks.contenders import (
    Contender,
    Match,
    accelerate_loop,
    fabric_loop,
    loss_of,
    own_step,
    plain_loop,
    synchronise,
)
from benchmarks.options import Options, digits_of_28
from benchmarks.rounds import Spread, how_many, interleave, ratios
from benchmarks.table import show, show_table, verdict
from paceline.step.build import load_data
from paceline.workload import resolve

SHORT_EPOCH_S = 0.1  # epochs shorter than this are repeated within a round
BUDGET_S = {"cpu": 60.0, "cuda": 12.0}  # for the rounds of one case


@dataclass(frozen=True)
class Case:
    network: str
    samples: int
    batch: int
    bars: dict[str, float]
    """How many times as fast as each peer Paceline should be."""


CASES = {
    "cpu": (
        Case("dnn", 55_000, 64, {"DataLoader loop": 2.0, "Lightning Fabric": 2.5, "Accelerate": 2.5}),
    ),
    "cuda": (
        Case("mlp", 50_000, 100, {"DataLoader loop": 25.0}),
        Case("mlp", 50_000, 500, {"DataLoader loop": 50.0}),
        Case("mlp", 50_000, 2000, {"DataLoader loop": 100.0}),
        Case("lstm", 50_000, 100, {"DataLoader loop": 5.0}),
    ),
}  # fmt: skip
STEPS = {"cpu": ("auto", "plain", "flat", "compiled"), "cuda": ("auto", "graph")}


@dataclass(eq=False)
class Course:
    """A contender on its way through the rounds."""

    contender: Contender
    match: Match
    threads: int
    checked_after: int = 0
    """The number of epochs after which all contenders' losses are compared."""
    repeats: int = 1
    epochs: int = 0
    loss: float = field(default=float("nan"))

    def warm_up(self) -> float:
        seconds = self._epoch()
        self.repeats = max(1, min(50, ceil(SHORT_EPOCH_S / seconds)))
        return seconds

    def round(self) -> float:
        return sum(self._epoch() for _ in range(self.repeats)) / self.repeats

    def _epoch(self) -> float:
        assert torch.get_num_threads() == self.threads, "all contenders have the same threads"
        synchronise(self.match.device)
        start_s = perf_counter()
        self.contender.epoch(self.epochs)
        synchronise(self.match.device)
        seconds = perf_counter() - start_s
        self.epochs += 1
        if self.epochs == self.checked_after:
            self.loss = loss_of(self.contender.network, self.match)
        return seconds


def run(options: Options) -> list[dict[str, Any]]:
    default_threads = torch.get_num_threads()
    results = []
    for case in CASES[options.device.type]:
        threads = 1 if options.device.type == "cpu" else default_threads
        results.append(_run_case(case, options, threads))
        torch.set_num_threads(default_threads)
    return results


def _run_case(case: Case, options: Options, threads: int) -> dict[str, Any]:
    samples = case.samples // 10 if options.quick else case.samples
    source = digits_of_28(samples)
    # A constant rate, because the peers' loops have no schedule to pay for.
    settings = {"data": source, "batch": case.batch, "threads": threads, "schedule": "constant"}
    workload = resolve(case.network, settings)
    match = Match.of(workload, load_data(workload), options.device)
    # Before the others, so that none of them pays for what PyTorch imports when first used.
    start_loss = loss_of(match.peer()[0], match)
    courses = [Course(made, match, threads) for made in _contenders(match, options)]
    torch.set_num_threads(threads)
    warm_s = sum(course.warm_up() for course in courses)
    rounds = how_many(options.rounds, options.quick, warm_s, BUDGET_S[options.device.type])
    for course in courses:
        course.checked_after = 1 + rounds
    seconds = interleave({course.contender.name: course.round for course in courses}, rounds)
    show_table(
        f"epoch: {case.network}, batch {case.batch}, {source}, {workload.optimizer} {workload.lr:g}, "
        f"l2 {workload.l2:g}, dropout {workload.dropout or 0:g}, {options.device.type}, "
        f"{threads} thread{'s' * (threads > 1)}, {rounds} rounds",
        ("", "s an epoch (min–max)", "prepared in", *(f"× {peer}" for peer in _peers(seconds)), "loss"),
        [_row(course, seconds) for course in courses],
    )
    _show_losses(courses, start_loss, 1 + rounds)
    bars = _show_bars(case, seconds)
    _show_break_even(courses, seconds, workload.epochs)
    return {
        "case": f"{case.network}-{case.batch}", "data": source, "threads": threads, "rounds": rounds,
        "seconds": seconds, "prepare_s": {c.contender.name: c.contender.prepare_s for c in courses},
        "loss": {c.contender.name: c.loss for c in courses}, "bars": bars,
    }  # fmt: skip


def _contenders(match: Match, options: Options) -> list[Contender]:
    peers: list[tuple[str, Callable[[Match], Contender]]] = [
        ("torch", plain_loop), ("lightning", fabric_loop), ("accelerate", accelerate_loop),
    ]  # fmt: skip
    made = []
    for package, make in peers:
        if find_spec(package) is None:
            show(f"{package} is not installed and takes no part")
        else:
            made.append(make(match))
    return made + [own_step(match, step) for step in STEPS[options.device.type]]


def _peers(seconds: dict[str, list[float]]) -> list[str]:
    return [name for name in seconds if not name.startswith("Paceline")]


def _own(seconds: dict[str, list[float]]) -> list[str]:
    """Paceline's rows: what a user gets first, then the fastest, if that is another."""
    own = [name for name in seconds if name.startswith("Paceline")]
    fastest = min(own, key=lambda name: Spread.of(seconds[name]).median)
    return list(dict.fromkeys([own[0], fastest]))


def _row(course: Course, seconds: dict[str, list[float]]) -> list[str]:
    name = course.contender.name
    against = [
        "" if peer == name else Spread.of(ratios(seconds[peer], seconds[name])).text() for peer in _peers(seconds)
    ]
    time = Spread.of(seconds[name]).text(4)
    return [name, time, f"{course.contender.prepare_s:.2f} s", *against, f"{course.loss:.4f}"]


def _show_losses(courses: list[Course], start: float, epochs: int) -> None:
    reference = courses[0].loss
    apart = [c.contender.name for c in courses if not abs(c.loss - reference) <= max(0.02, 0.25 * reference)]
    told = f"differ too much, look into it: {', '.join(apart)}" if apart else "comparable"
    show(f"Loss over the training samples after {epochs} epochs each, {start:.3f} before the first: {told}.")


def _show_bars(case: Case, seconds: dict[str, list[float]]) -> list[dict[str, Any]]:
    bars = []
    for name in _own(seconds):
        for peer, bar in case.bars.items():
            if peer not in seconds:
                continue
            found = ratios(seconds[peer], seconds[name])
            spread = Spread.of(found)
            bars.append({"step": name, "against": peer, "ratios": found, "bar": bar})
            show(f"{name}: {spread.text()} × {peer}, bar {bar:g}: {verdict(spread.median, bar)}")
    return bars


def _show_break_even(courses: list[Course], seconds: dict[str, list[float]], usual_epochs: int) -> None:
    """How long a training must be for compiling to pay."""
    costs = {c.contender.name: c.contender.prepare_s for c in courses}
    flat, compiled = "Paceline flat", "Paceline compiled"
    if flat not in seconds or compiled not in seconds:
        return
    saved_s = Spread.of(seconds[flat]).median - Spread.of(seconds[compiled]).median
    if saved_s <= 0:
        show("Compiling does not pay here: the flat step is as fast.")
        return
    epochs = (costs[compiled] - costs[flat]) / saved_s
    show(f"Compiling pays from {epochs:.0f} epochs on; this network's usual training has {usual_epochs}.")
