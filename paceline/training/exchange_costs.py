"""Measures what exchanging with a local server costs on this machine, by training three small networks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from paceline.cost.exchange import ExchangeCost, oversubscription, protocol_of
from paceline.step.placement import available_cores
from paceline.strategy.presets import find_strategy
from paceline.strategy.strategy import Strategy
from paceline.training import trainer
from paceline.training.run import Run
from paceline.workload import Workload

STRATEGIES = ("sync", "downpour", "delay-compensated")
WORKERS = (1, 2, 4)
SAMPLES = 12_800
DATA = f"synthetic:1x28x28/10:{SAMPLES}"
SIZES = ((64, 64), (256, 128), (512, 256))
"""Hidden layers of the networks: 0.2, 0.9 and 2.1 megabytes of parameters, around what a core's cache holds."""
EPOCHS = 8
Setting = tuple[Strategy, int]
"""A strategy and how many workers."""


@dataclass(frozen=True)
class StepTimes:
    """The time of a network's step in one process alone, and in each of several workers."""

    parameter_bytes: int
    alone_s: float
    together_s: dict[Setting, float]


def measure_exchange(rounds: int) -> tuple[ExchangeCost, ...]:
    """The cost of exchanging for each strategy and number of workers."""
    return exchange_costs(measure_steps(reference_networks(), STRATEGIES, WORKERS, rounds))


def reference_networks() -> list[Workload]:
    """The networks whose training shows what exchanging costs."""
    return [
        Workload("dnn", DATA, options={"hidden": list(hidden)}, dropout=0.0, epochs=EPOCHS, threads=1, device="cpu")
        for hidden in SIZES
    ]


def measure_steps(
    networks: Sequence[Workload], strategies: Sequence[str], workers: Sequence[int], rounds: int
) -> list[StepTimes]:
    """Medians of `rounds` interleaved rounds, so that a slow moment of the machine affects all alike.

    One process alone is timed before each strategy: its memory may happen to lie badly, and then a run is slower.
    """
    from paceline.training.drivers.local import launcher

    alone: list[list[float]] = [[] for _ in networks]
    together = [defaultdict[Setting, list[float]](list) for _ in networks]
    parameter_bytes = [0] * len(networks)
    for _ in range(rounds):
        for strategy in map(find_strategy, strategies):
            for place, workload in enumerate(networks):
                run = trainer.run(workload)
                parameter_bytes[place] = 4 * run.parameters
                alone[place].append(_step_s(run))
                for count in workers:
                    made = launcher.run(workload, strategy, workers=count)
                    together[place][strategy, count].append(_step_s(made, count))
    return [
        StepTimes(size, median(one), {setting: median(times) for setting, times in several.items()})
        for size, one, several in zip(parameter_bytes, alone, together, strict=True)
    ]


def exchange_costs(references: Sequence[StepTimes]) -> tuple[ExchangeCost, ...]:
    """Fits the costs to the times of the reference networks."""
    cores, costs = available_cores(), []
    for strategy, workers in references[0].together_s:
        crowd = oversubscription(workers, cores)
        points = [(r.parameter_bytes, r.together_s[strategy, workers] - crowd * r.alone_s) for r in references]
        costs.append(ExchangeCost.fit(protocol_of(strategy), workers, cores, points))
    return tuple(costs)


def _step_s(run: Run, workers: int = 1) -> float:
    """Seconds per step of one worker, from the epochs after the first."""
    return median(run.workload.batch * workers / epoch.samples_per_s for epoch in run.epochs[1:])
