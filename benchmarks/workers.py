"""Epochs of local workers, predicted from a calibration of exchanging, and measured, in turn, on this machine."""

from __future__ import annotations

from statistics import median
from typing import Any

from benchmarks.options import Options, digits_of_28
from benchmarks.table import show
from paceline.step.placement import available_cores
from paceline.train import trainer
from paceline.train.exchange_costs import STRATEGIES, WORKERS, measure_exchange, step_s
from paceline.train.local import launcher
from paceline.workload import Workload

ROUNDS = 2
NETWORKS = {"dnn": {"hidden": [64, 64]}, "mlp": {"hidden": [200]}}


def run(options: Options) -> dict[str, Any]:
    """Each round calibrates and then trains, so that a slow moment meets both."""
    rounds = options.rounds or (1 if options.quick else ROUNDS)
    samples = 3200 if options.quick else 20000
    cores = available_cores()
    errors: dict[tuple[str, str, int], list[float]] = {}
    epochs: dict[tuple[str, str, int], list[tuple[float, float]]] = {}
    for _ in range(rounds):
        known = {(cost.strategy, cost.workers): cost for cost in measure_exchange(rounds=1)}
        for network, hidden in NETWORKS.items():
            workload = Workload(
                network, digits_of_28(samples), options=hidden, dropout=0.0, epochs=4, threads=1, device="cpu"
            )
            single = trainer.run(workload)
            alone_s, size_bytes = step_s(single), 4 * single.parameters
            for strategy in STRATEGIES:
                for count in WORKERS:
                    made = launcher.run(workload, strategy, workers=count)
                    steps = -(-samples // (workload.batch * count))
                    predicted = steps * known[strategy, count].step_s(alone_s, size_bytes, cores)
                    measured = steps * step_s(made, count)
                    errors.setdefault((network, strategy, count), []).append(predicted / measured - 1.0)
                    epochs.setdefault((network, strategy, count), []).append((predicted, measured))
    show(f"{'network':8} {'strategy':18} {'workers':>7} {'predicted':>10} {'measured':>10} {'error':>7}")
    for (network, strategy, count), found in epochs.items():
        predicted, measured = (median(pair[place] for pair in found) for place in (0, 1))
        error = median(errors[network, strategy, count])
        show(f"{network:8} {strategy:18} {count:7} {predicted:8.3f} s {measured:8.3f} s {error:+7.1%}")
    every = [abs(median(found)) for found in errors.values()]
    show(f"median error {median(every):.1%}, largest {max(every):.1%}")
    return {f"{n} {s} {w}": found for (n, s, w), found in errors.items()}
