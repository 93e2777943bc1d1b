"""The time of a step in closed form: close to a simulation, and a thousand times faster.

A synchronous group takes as long as its slowest member plus an all-reduce. Asynchronous workers follow a parameter
server's cycle, which its bottleneck (the worker's own chain, the link or the server) determines.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from statistics import NormalDist

from paceline.cluster import Link
from paceline.cost.communication import ParameterServer
from paceline.cost.exchange import ExchangeCost
from paceline.cost.prediction import Prediction
from paceline.cost.server_work import server_seconds
from paceline.planning.candidate import Candidate
from paceline.planning.machine_options import MachineOption
from paceline.simulation.links import message_sizes
from paceline.simulation.local_exchange import calibrated_exchange
from paceline.simulation.on_cluster import HANDLING_S, TASK_S, leaves_updates, payloads_of, variation_of
from paceline.simulation.placement import Placement
from paceline.simulation.worker_step import acts_alone, exchanges_by_server, fetches_per_step, group_exchange_s
from paceline.strategy.strategy import Strategy


@dataclass(frozen=True)
class Computing:
    """The computation of one worker."""

    iteration_s: float
    update_s: float
    """The part that a server does, where there is one."""
    variation: float
    """Coefficient of variation of a step."""
    parameter_bytes: int
    optimizer: str = ""
    threads: int = 0
    exchange: tuple[ExchangeCost, ...] = ()

    @staticmethod
    def of(prediction: Prediction, factor: float = 1.0) -> Computing:
        """As predicted, times `factor`."""
        return Computing(
            factor * prediction.iteration_s,
            factor * prediction.parts_s.get("update", 0.0),
            variation_of(prediction),
            prediction.parameter_bytes,
            prediction.conditions.get("optimizer", ""),
            prediction.threads,
            prediction.exchange,
        )


def placement_of(candidate: Candidate, place: MachineOption) -> Placement:
    on_gpu = place.device.kind == "gpu"
    return Placement(place.machine, candidate.workers, candidate.workers_per_machine, on_gpu, place.network)


def machines_needed(candidate: Candidate, place: MachineOption) -> int:
    """Machines with workers, plus one for the server if workers are on several machines."""
    placement = placement_of(candidate, place)
    if candidate.is_divided:
        return placement.machines
    return placement.machines + (not placement.together and exchanges_by_server(candidate.strategy, placement))


def core_slowdown(candidate: Candidate, place: MachineOption, threads: int) -> float:
    """The slowdown of a step if the machine has fewer cores than its workers have threads."""
    placement = placement_of(candidate, place)
    return placement.slowdown(placement.on_one * max(1, threads))


def alone_s(candidate: Candidate, computing: Computing) -> float:
    """A lower bound for the time of a step, without any exchange."""
    return computing.iteration_s - (computing.update_s if candidate.workers > 1 else 0.0)


def estimated_step_s(candidate: Candidate, place: MachineOption, computing: Computing) -> float:
    """The time of a worker's step, including waiting."""
    placement, strategy = placement_of(candidate, place), candidate.strategy
    crowd, size_bytes = core_slowdown(candidate, place, computing.threads), computing.parameter_bytes
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
    """The time between two exchanges with the server, with `round_s` of computing in between."""
    size_bytes = computing.parameter_bytes
    messages, payloads = message_sizes(strategy, size_bytes), payloads_of(strategy, placement)
    network = placement.exchange(messages.fetch_bytes, messages.push_bytes)
    link = Link("exchange", network.latency_s, network.bandwidth, network.shared)
    server_s = server_seconds(strategy, size_bytes, placement.machine, computing.optimizer, payloads)
    if placement.together:
        round_s, server_s = round_s + TASK_S, server_s + HANDLING_S
    clients = placement.workers if acts_alone(strategy, placement) else (strategy.groups or 1)
    fetched_bytes = min(1.0, fetches_per_step(strategy) * strategy.push_every) * messages.fetch_bytes
    server = ParameterServer(clients, round_s, fetched_bytes, link, server_s, strategy.overlap, messages.push_bytes)
    return server.synchronous_cycle_s() if strategy.groups == 1 else server.cycle_s()


def _order_statistic(count: int, rank: int) -> float:
    """The expected order statistic of `count` standard normal values (Blom 1958)."""
    return NormalDist().inv_cdf((rank - 0.375) / (count + 0.25)) if count > 1 else 0.0
