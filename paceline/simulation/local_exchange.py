"""Uses the calibrated exchange of workers on one machine in place of the simulated one.

A simulation knows cores, copies and queues; waking processes and sharing caches it does not. `paceline calibrate
--workers` trained such workers, so that a step of theirs is known; how its rest divides stays as simulated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from paceline.cost.exchange import ExchangeCost, protocol_of
from paceline.cost.prediction import Prediction
from paceline.simulation.placement import Placement
from paceline.simulation.steady import StepTime
from paceline.simulation.worker_step import exchanges_by_server
from paceline.strategy.strategy import Strategy


def calibrated_exchange(known: Sequence[ExchangeCost], strategy: Strategy, placement: Placement) -> ExchangeCost | None:
    """The cost that was measured with this strategy, under any name, and the same numbers of workers and cores."""
    if placement.on_gpu or not placement.together or not exchanges_by_server(strategy, placement):
        return None
    wanted = protocol_of(strategy), placement.workers, placement.cores
    return next((cost for cost in known if (cost.strategy, cost.workers, cost.cores) == wanted), None)


def as_calibrated(found: StepTime, cost: ExchangeCost, prediction: Prediction) -> StepTime:
    """The step with its calibrated duration; parts other than computing keep their proportions."""
    step_s = cost.step_s(prediction.iteration_s, prediction.parameter_bytes, cost.cores)
    computing_s = min(step_s, cost.oversubscribed_s(prediction.iteration_s, cost.cores))
    rest_s, simulated_s = step_s - computing_s, found.step_s - found.computing_s
    if simulated_s <= 0:
        return replace(found, step_s=step_s, computing_s=computing_s, communicating_s=rest_s, waiting_s={})
    scale, slower = rest_s / simulated_s, step_s / found.step_s
    return replace(
        found,
        step_s=step_s,
        computing_s=computing_s,
        communicating_s=scale * found.communicating_s,
        waiting_s={what: scale * seconds for what, seconds in found.waiting_s.items()},
        server_share=min(1.0, found.server_share / slower),
        link_share=min(1.0, found.link_share / slower),
    )
