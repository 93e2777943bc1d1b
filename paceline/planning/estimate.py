"""What a step takes, in closed form: close to what simulating finds, and a thousand times as quick.

A synchronous group lasts as long as its slowest member and then as long as an all-reduce; asynchronous workers are a
parameter server's cycle, whose slowest part (a worker's own chain, the link, the server) sets the pace.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from statistics import NormalDist

from paceline.cluster import Link
from paceline.cost.communication import ParameterServer
from paceline.cost.exchange import ExchangeCost
from paceline.cost.prediction import Prediction
from paceline.planning.candidate import Candidate
from paceline.planning.places import Place
from paceline.simulation.links import message_sizes
from paceline.simulation.local_exchange import calibrated_exchange
from paceline.simulation.on_cluster import HANDLING_S, TASK_S, leaves_updates, payloads_of, variation_of
from paceline.simulation.placement import Placement
from paceline.simulation.server_work import server_seconds
from paceline.simulation.worker_step import acts_alone, exchanges_by_server, fetches_per_step, group_exchange_s
from paceline.strategy.strategy import Strategy


@dataclass(frozen=True)
class Computing:
    """What a worker does by itself."""

    iteration_s: float
    update_s: float
    """The part of it that is the server's, where there is one."""
    variation: float
    """The deviation of a step, as a share of it."""
    parameter_bytes: int
    optimizer: str = ""
    threads: int = 0
    exchange: tuple[ExchangeCost, ...] = ()

    @staticmethod
    def of(prediction: Prediction, factor: float = 1.0) -> Computing:
        """As predicted, or a multiple of it."""
        return Computing(
            factor * prediction.iteration_s,
            factor * prediction.parts_s.get("update", 0.0),
            variation_of(prediction),
            prediction.parameter_bytes,
            prediction.conditions.get("optimizer", ""),
            prediction.threads,
            prediction.exchange,
        )


def placing_of(candidate: Candidate, place: Place) -> Placement:
    on_gpu = place.device.kind == "gpu"
    return Placement(place.machine, candidate.workers, candidate.workers_per_machine, on_gpu, place.network)


def machines_of(candidate: Candidate, place: Place) -> int:
    """Those with workers, and the server's own where workers are on several."""
    placement = placing_of(candidate, place)
    return placement.machines + (not placement.together and exchanges_by_server(candidate.strategy, placement))


def crowding(candidate: Candidate, place: Place, threads: int) -> float:
    """How many times as long a step takes where the machine has fewer cores than its workers have threads."""
    placement, each = placing_of(candidate, place), max(1, threads)
    return placement.slowdown(placement.on_one * each, each, 0.0)


def alone_s(candidate: Candidate, computing: Computing) -> float:
    """What a step cannot be shorter than, whatever is exchanged."""
    return computing.iteration_s - (computing.update_s if candidate.workers > 1 else 0.0)


def estimated_step_s(candidate: Candidate, place: Place, computing: Computing) -> float:
    """Of a worker, with what it waits for."""
    placement, strategy = placing_of(candidate, place), candidate.strategy
    crowd, size_bytes = crowding(candidate, place, computing.threads), computing.parameter_bytes
    step_s = crowd * computing.iteration_s
    if candidate.workers == 1:
        return step_s
    if cost := calibrated_exchange(computing.exchange, strategy, placement):
        return cost.step_s(computing.iteration_s, size_bytes, cost.cores)
    steps, served = max(1, strategy.push_every), exchanges_by_server(strategy, placement)
    if served and leaves_updates(strategy):
        step_s -= crowd * computing.update_s
    group = 1 if strategy.groups is None else candidate.workers // strategy.groups
    slowest = _order_statistic(group, group - strategy.backup_workers) * computing.variation / sqrt(steps)
    round_s = steps * step_s * (1 + slowest)
    if not acts_alone(strategy, placement):
        round_s += group_exchange_s(strategy, placement, size_bytes, group)
    return (_cycle_s(strategy, placement, computing, round_s) if served else round_s) / steps


def _cycle_s(strategy: Strategy, placement: Placement, computing: Computing, round_s: float) -> float:
    """From one exchange with the server to the next, with rounds of so many seconds between them."""
    size_bytes = computing.parameter_bytes
    messages, payloads = message_sizes(strategy, size_bytes), payloads_of(strategy, placement)
    network = placement.exchange(*messages)
    link = Link("exchange", network.latency_s, network.bandwidth, network.shared)
    server_s = server_seconds(strategy, size_bytes, placement.machine, computing.optimizer, payloads)
    if placement.together:
        round_s, server_s = round_s + TASK_S, server_s + HANDLING_S
    clients = placement.workers if acts_alone(strategy, placement) else (strategy.groups or 1)
    fetched_bytes = min(1.0, fetches_per_step(strategy) * strategy.push_every) * size_bytes
    server = ParameterServer(clients, round_s, fetched_bytes, link, server_s, strategy.overlap, messages.push_bytes)
    return server.synchronous_cycle_s() if strategy.groups == 1 else server.cycle_s()


def _order_statistic(count: int, rank: int) -> float:
    """Of so many standard normal numbers, the one of this rank on average (Blom 1958)."""
    return NormalDist().inv_cdf((rank - 0.375) / (count + 0.25)) if count > 1 else 0.0
