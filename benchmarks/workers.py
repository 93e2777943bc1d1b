"""Epochs of local workers, predicted from a calibration of exchanging, and measured, in turn, on this machine."""

from __future__ import annotations

from dataclasses import asdict
from statistics import median
from typing import Any

from benchmarks.options import Options
from benchmarks.table import show, show_table
from paceline.cost.exchange import protocol_of
from paceline.step.placement import available_cores
from paceline.training.exchange_costs import (
    DATA,
    EPOCHS,
    SAMPLES,
    STRATEGIES,
    WORKERS,
    StepTimes,
    exchange_costs,
    measure_steps,
    reference_networks,
)
from paceline.workload import Workload

ROUNDS = 3
NETWORKS = {"dnn": [128, 128], "mlp": [200]}
QUICKLY = (("downpour",), (1, 2))
BAR = 0.10


def run(options: Options) -> dict[str, Any]:
    """Networks that calibrate and networks that are predicted are trained side by side; each figure is a median."""
    rounds = options.rounds or (1 if options.quick else ROUNDS)
    settings: dict[str, Any] = {"dropout": 0.0, "epochs": EPOCHS, "threads": 1, "device": "cpu"}
    predicted = [Workload(name, DATA, options={"hidden": hidden}, **settings) for name, hidden in NETWORKS.items()]
    references = reference_networks()
    strategies, workers = QUICKLY if options.quick else (STRATEGIES, WORKERS)
    found = measure_steps([*references, *predicted], strategies, workers, rounds)
    others = found[len(references) :]
    costs = exchange_costs(found[: len(references)])
    rows, errors = [], []
    for cost in costs:
        for network, times in zip(predicted, others, strict=True):
            steps = -(-SAMPLES // (network.batch * cost.workers))
            expected_s = cost.step_s(times.alone_s, times.parameter_bytes, available_cores())
            strategy = next(s for s, _ in times.together_s if protocol_of(s) == cost.strategy)
            took_s = times.together_s[strategy, cost.workers]
            errors.append(expected_s / took_s - 1.0)
            rows.append(
                [network.network, strategy.name, str(cost.workers), f"{steps * expected_s:.3f} s",
                 f"{steps * took_s:.3f} s", f"{errors[-1]:+.1%}"]
            )  # fmt: skip
    show_table(
        f"workers: an epoch, with several of them on {available_cores()} cores, {rounds} rounds",
        ("network", "strategy", "workers", "predicted", "measured", "error"),
        rows,
    )
    sizes = [abs(error) for error in errors]
    beyond = sum(size > BAR for size in sizes)
    show(f"median error {median(sizes):.1%}, largest {max(sizes):.1%}; {beyond} of {len(sizes)} beyond {BAR:.0%}")
    return {"costs": [asdict(cost) for cost in costs], "steps": [_plain(times) for times in found], "errors": errors}


def _plain(times: StepTimes) -> dict[str, Any]:
    together = {f"{strategy.name} {workers}": seconds for (strategy, workers), seconds in times.together_s.items()}
    return {"parameter_bytes": times.parameter_bytes, "alone_s": times.alone_s, "together_s": together}
