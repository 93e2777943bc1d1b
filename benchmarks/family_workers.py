"""Whether two local workers learn what one process learns: five seeds of each family on small data."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import paceline
from benchmarks.kept_runs import kept_run

SEEDS = 5
STANDARD_ERRORS = 2.0

COMPRESSION: dict[str, Any] = {"epochs": 60, "batch": 32, "lr": 5e-4, "options": {"code": 8}}
DISTRIBUTED: dict[str, dict[str, Any]] = {
    "autoencoder": COMPRESSION,
    "vae": COMPRESSION,
    "cvae": COMPRESSION,
    "deconvolutional": {**COMPRESSION, "epochs": 300, "lr": 2.5e-4},
    "gan": {"epochs": 60, "lr": 2e-3, "options": {"channels": [16, 32]}},
    "rbm": {"epochs": 40, "batch": 32, "options": {"hidden": 64, "k": 5}},
    "dbn": {"epochs": 60, "batch": 32, "lr": 0.01, "options": {"hidden": [64, 32], "pretrain": 2}},
    "rnn": {"epochs": 30, "batch": 32, "options": {"hidden": 32}},
    "gru": {"epochs": 20, "batch": 32, "options": {"hidden": 32}},
    "lstm": {"epochs": 20, "batch": 32, "options": {"hidden": 32}},
    "recursive": {"data": "logic:4:1000", "epochs": 10, "batch": 32, "lr": 0.01},
}
"""Settings for small data that five seeds and three ways of training are compared with.

`deconvolutional` trains longer at a lower rate: what a late gradient costs falls with the rate, and after 60 epochs the
error still falls fast.
"""
COMPARED = [
    *((network, "sync") for network in DISTRIBUTED),
    *((network, "downpour") for network in DISTRIBUTED if network != "gan"),
    ("gan", "local-sgd"),
]
"""The bar leaves `gan` with `downpour` out: two networks that play against each other are trained with gradients of
older opponents. `local-sgd` trains them in turn, as one process does."""
STRATEGY_SETTINGS: dict[str, dict[str, Any]] = {"local-sgd": {"period": 1}}


def same_with_workers(network: str, strategy: str, seeds: int, directory: Path) -> dict[str, Any]:
    """The final metric (of a classifier, its accuracy) of one process and of two local workers.

    Workers that wait for each other share a batch, so that an update has as many samples as alone. Runs are kept in
    `directory`.
    """
    settings = DISTRIBUTED[network]
    batch = paceline.resolve(network).batch
    given = {"data": "digits", "device": "cpu", "threads": 1, "batch": batch, **settings}
    shared = given | {"workers": 2, "driver": "local"} | STRATEGY_SETTINGS.get(strategy, {})
    if strategy != "downpour":
        shared["batch"] = given["batch"] // 2

    def finals(how: str, *strategies: str, **settings: Any) -> list[float]:
        places = (directory / f"{network}-{how}-{seed}" for seed in range(seeds))
        return [
            _final(kept_run(place, network, *strategies, seed=seed, **settings)) for seed, place in enumerate(places)
        ]

    together, alone = finals(strategy, strategy, **shared), finals("alone", **given)
    error = math.sqrt((stdev(alone) ** 2 + stdev(together) ** 2) / seeds)
    return {
        "network": network, "strategy": strategy, "alone": alone, "together": together,
        "standard errors": abs(mean(alone) - mean(together)) / error,
    }  # fmt: skip


def _final(run: paceline.Run) -> float:
    return run.epochs[-1].test_metric if run.metric else run.test_accuracy
