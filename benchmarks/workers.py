"""Epochs of local workers, predicted from a calibration of exchanging, and measured, in turn, on this machine."""

from __future__ import annotations

from statistics import median
from typing import Any

from benchmarks.options import Options, digits_of_28
from benchmarks.table import show
from paceline.cost.exchange import ExchangeCost
from paceline.step.placement import available_cores
from paceline.train import trainer
from paceline.train.exchange_costs import STRATEGIES, WORKERS, measure_exchange, step_s
from paceline.train.local import launcher
from paceline.workload import Workload

ROUNDS = 2
NETWORKS = {"dnn": {"hidden": [128, 128]}, "mlp": {"hidden": [200]}}
EPOCHS = 16


def run(options: Options) -> dict[str, Any]:
    """Calibrated and trained strategy by strategy and count by count, so that a slow moment meets both."""
    rounds = options.rounds or (1 if options.quick else ROUNDS)
    samples = 3200 if options.quick else 12800
    errors: dict[tuple[str, str, int], list[float]] = {}
    show(f"{'network':8} {'strategy':18} {'workers':>7} {'predicted':>10} {'measured':>10} {'error':>7}")
    for strategy, count in [(s, w) for _ in range(rounds) for s in STRATEGIES for w in WORKERS]:
        (known,) = measure_exchange([strategy], [count], rounds=1)
        for network, hidden in NETWORKS.items():
            workload = Workload(
                network, digits_of_28(samples), options=hidden, dropout=0.0, epochs=EPOCHS, threads=1, device="cpu"
            )
            predicted, measured = _epoch_s(workload, strategy, count, known, samples)
            error = predicted / measured - 1.0
            errors.setdefault((network, strategy, count), []).append(error)
            show(f"{network:8} {strategy:18} {count:7} {predicted:8.3f} s {measured:8.3f} s {error:+7.1%}")
    every = [abs(median(found)) for found in errors.values()]
    show(f"of {len(every)}, each the median of {rounds}: median error {median(every):.1%}, largest {max(every):.1%}")
    return {f"{n} {s} {w}": found for (n, s, w), found in errors.items()}


def _epoch_s(workload: Workload, strategy: str, count: int, known: ExchangeCost, samples: int) -> tuple[float, float]:
    """Predicted and measured, with one process before and after the workers."""
    before = trainer.run(workload)
    made = launcher.run(workload, strategy, workers=count)
    alone_s = (step_s(before) + step_s(trainer.run(workload))) / 2
    steps = -(-samples // (workload.batch * count))
    predicted_s = known.step_s(alone_s, 4 * before.parameters, available_cores())
    return steps * predicted_s, steps * step_s(made, count)
