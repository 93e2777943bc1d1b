"""Finds what a local server's exchange costs on this machine's cores, by training two small networks with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from paceline.cost.exchange import ExchangeCost
from paceline.step.placement import available_cores
from paceline.train import trainer
from paceline.train.local import launcher
from paceline.train.run import Run
from paceline.workload import Workload

STRATEGIES = ("sync", "downpour", "delay-compensated")
WORKERS = (1, 2, 4)
DATA = "synthetic:1x28x28/10:12800"
SIZES = ((64, 64), (512, 256))
"""Hidden layers of the two networks: 55 thousand parameters and half a million."""
EPOCHS = 12


@dataclass(frozen=True)
class Tried:
    """A network, and what a step of it takes one process alone."""

    workload: Workload
    alone_s: float
    parameter_bytes: int


def step_s(run: Run, workers: int = 1) -> float:
    """Of one worker, from the epochs after the first."""
    batch = run.workload.batch
    return median(batch * workers / epoch.samples_per_s for epoch in run.epochs[1:])


def measure_exchange(
    strategies: Sequence[str] = STRATEGIES,
    workers: Sequence[int] = WORKERS,
    *,
    rounds: int = 2,
    watch: Callable[[float], None] | None = None,
) -> tuple[ExchangeCost, ...]:
    """`rounds` times everything in turn, so that a slow moment of the machine meets all alike."""
    networks = [
        Workload("dnn", DATA, options={"hidden": list(hidden)}, dropout=0.0, epochs=EPOCHS, threads=1, device="cpu")
        for hidden in SIZES
    ]
    alone: dict[int, list[float]] = {place: [] for place in range(len(networks))}
    found: dict[tuple[str, int, int], list[float]] = {}
    size_bytes = [0] * len(networks)
    done, jobs = 0, rounds * len(networks) * (1 + len(strategies) * len(workers))
    for _ in range(rounds):
        for place, workload in enumerate(networks):
            run = trainer.run(workload)
            alone[place].append(step_s(run))
            size_bytes[place] = 4 * run.parameters
            for strategy in strategies:
                for count in workers:
                    made = launcher.run(workload, strategy, workers=count)
                    found.setdefault((strategy, count, place), []).append(step_s(made, count))
                    done += 1
                    if watch is not None:
                        watch(done / jobs)
    tried = [Tried(w, median(alone[place]), size_bytes[place]) for place, w in enumerate(networks)]
    return tuple(
        _cost(strategy, count, tried, [median(found[strategy, count, place]) for place in range(len(tried))])
        for strategy in strategies
        for count in workers
    )


def _cost(strategy: str, workers: int, tried: Sequence[Tried], steps_s: Sequence[float]) -> ExchangeCost:
    """The straight line through both networks' extra time; never less than nothing for a byte."""
    cores = available_cores()
    crowd = max(1.0, workers / cores)
    small, large = (took - crowd * each.alone_s for took, each in zip(steps_s, tried, strict=True))
    width = tried[1].parameter_bytes - tried[0].parameter_bytes
    byte_s = max(0.0, (large - small) / width)
    return ExchangeCost(strategy, workers, small - byte_s * tried[0].parameter_bytes, byte_s, cores)
