"""Asynchronous training on simulated workers: the more there are, the older their gradients, and the worse they train.

Run it:  python examples/delayed_gradients.py
"""

from __future__ import annotations

from torch import Tensor

import paceline


def damped(gradient: Tensor, late: paceline.Late) -> Tensor:
    """A custom correction: shorter the later it is, and the more the parameters moved since the fetch."""
    moved = (late.parameters - late.fetched).norm() / late.parameters.norm()
    return gradient / (1 + late.staleness * moved)


STRATEGIES = {
    "no correction": paceline.find_strategy("downpour"),
    "delay compensation": paceline.find_strategy("delay-compensated", correction="adaptive:2"),
    "divided by staleness": paceline.find_strategy("staleness-aware"),
    "damped by movement": paceline.find_strategy("delay-compensated", correction="delayed_gradients:damped"),
    "synchronous": paceline.find_strategy("sync"),
}


def main() -> None:
    settings = {"data": "digits", "dropout": 0.0, "l2": 0.0, "schedule": "constant", "batch": 8, "epochs": 3}
    workload = paceline.resolve("dnn", {**settings, "optimizer": "sgd", "lr": 0.2})
    print(f"{'workers':>8} {'strategy':22} {'error':>7} {'staleness':>10} {'virtual s':>10}")
    for workers in (1, 8, 32):
        for name, strategy in STRATEGIES.items():
            run = paceline.train(
                workload, strategy, workers, "virtual", compute_time="gamma:100:0.01", on_bad_gradient="skip"
            )
            found = run.distribution
            assert found is not None
            print(
                f"{workers:8} {name:22} {100 * (1 - run.test_accuracy):6.1f}% "
                f"{found.ledger.mean_staleness:10.1f} {found.seconds:10.1f}"
            )


if __name__ == "__main__":
    main()
