"""Plans to deploy, made with invented predictions: what is tested is what becomes of their pick."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

from paceline.planning.machine_options import find_machine_options
from paceline.planning.objective import Objective
from paceline.planning.plan import Plan
from paceline.planning.planning import make_plan
from paceline.strategy.presets import find_strategy
from paceline.workload import resolve
from tests.planning.invented import InventedPredictions


@functools.cache
def _made(machine: str) -> Plan:
    workload = resolve("mlp", {"data": "digits"})
    predictions = InventedPredictions(samples=60_000, parameter_bytes=200_000, flops=2e8)
    return make_plan(
        workload, find_machine_options(machine), Objective(epochs=3.0), strategies=["sync"], predict=predictions
    )


def planned(
    machine: str = "g2-standard-48", *, machines: int = 3, workers_per_machine: int = 4, strategy: Any = "downpour",
    server_machine: bool = False, network: str = "mlp", spot: bool = False, precision: str = "float32",
    epochs: float = 3.0, **settings: Any,
) -> Plan:  # fmt: skip
    """A plan whose pick is given: twelve workers on three machines by default."""
    made = _made(machine)
    candidate = replace(
        made.pick.candidate, workers=machines * workers_per_machine, workers_per_machine=workers_per_machine,
        strategy=find_strategy(strategy), batch=32, precision=precision,
    )  # fmt: skip
    pick = replace(made.pick, candidate=candidate, machines=machines + server_machine, epochs=epochs)
    objective = replace(made.objective, spot=spot)
    return replace(made, workload=resolve(network, settings), pick=pick, objective=objective)
