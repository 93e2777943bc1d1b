"""A strategy on machines that need not exist: a prediction says what a step takes, the virtual driver the rest."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from paceline.cluster.link import Link
from paceline.cluster.machine import Machine
from paceline.cost.communication import ParameterServer
from paceline.cost.prediction import Prediction
from paceline.cost.server_work import server_seconds
from paceline.errors import InputError
from paceline.simulation.links import message_sizes
from paceline.simulation.local_exchange import as_calibrated, calibrated_exchange
from paceline.simulation.placement import AT_SERVER, DIVIDED, Placement, runs_on_gpu
from paceline.simulation.steady import StepTime
from paceline.simulation.worker_step import StepModel, acts_alone, exchanges_by_server
from paceline.strategy.group_averaging import AVERAGED_FROM_BYTES, averaging_obstacle_on_cluster
from paceline.strategy.strategy import Strategy

MOST_VARIATION = 0.05
"""Largest deviation of a single step; a prediction's uncertainty mostly affects all steps alike."""
DEVIATIONS_OF_90_PERCENT = 1.645
"""Deviations from the mean that 90 % of values stay within."""
TASK_S = 60e-6
"""A worker's overhead per exchange with a server on its machine, besides copying."""
HANDLING_S = 130e-6
"""That server's overhead per payload, besides the update. Both were measured on two cores of an AMD EPYC."""


@dataclass(frozen=True)
class ClusterOutcome:
    """The outcome with a number of workers. Shares are of the workers' time, the server's of its own."""

    workers: int
    machines: int
    """Including the server's own, if it has one."""
    step_s: float
    """Seconds from one step of a worker to its next, waiting and communicating included."""
    epoch_s: float
    """0 if the number of samples is not known."""
    samples_per_s: float
    """Over all workers; steps whose gradient is dropped do not count."""
    efficiency: float
    """Samples/s over the number of workers times the samples/s of one worker alone."""
    waiting_share: float
    communication_share: float
    staleness_mean: float
    server_share: float
    money_per_epoch: float | None
    """None if the price or the number of samples is not known."""
    currency: str
    bound: str
    """The bottleneck: compute, network, server or straggling."""
    calibrated: bool = False
    """Whether such workers were calibrated on such a machine, so that their step is measured, not only simulated."""


def simulate_on(
    prediction: Prediction, machine: Machine, workers: int, strategy: Strategy, **options: Any
) -> ClusterOutcome:
    """Simulates some steps of every worker and scales them to an epoch; `options` are those of `step_model`."""
    model = step_model(prediction, machine, workers, strategy, **options)
    strategy, placement = model.strategy, model.placement
    cost = calibrated_exchange(prediction.exchange, strategy, placement) if options.get("server_s") is None else None
    found = model.time() if cost is None else as_calibrated(model.time(), cost, prediction)
    machines = placement.machines + (not placement.together and exchanges_by_server(strategy, placement))
    samples_per_s = workers * prediction.batch * found.applied / found.step_s
    batches = _batches(prediction)
    epoch_s = _epoch_s(found, _steps_per_epoch(batches, workers, strategy), strategy)
    price = machine.price(epoch_s)
    return ClusterOutcome(
        workers=workers,
        machines=machines,
        step_s=found.step_s,
        epoch_s=epoch_s,
        samples_per_s=samples_per_s,
        efficiency=samples_per_s / (workers * prediction.samples_per_s),
        waiting_share=sum(found.waiting_s.values()) / found.step_s,
        communication_share=found.communicating_s / found.step_s,
        staleness_mean=found.staleness,
        server_share=found.server_share,
        money_per_epoch=None if price is None or not batches else machines * price,
        currency=machine.currency,
        bound=found.bound,
        calibrated=cost is not None,
    )


def step_model(
    prediction: Prediction,
    machine: Machine,
    workers: int,
    strategy: Strategy,
    *,
    network: Link | None,
    workers_per_machine: int = 1,
    steps: int = 200,
    server_s: float | None = None,
    seed: int = 0,
    overlap_backward: bool = False,
    driver: str = "",
) -> StepModel:
    """A worker's step, slowed down by the other workers of its machine.

    `server_s` is what the server takes for a payload, if that was measured; else it is estimated, and calibrated
    workers (`prediction.exchange`) have a step of measured duration. With `overlap_backward` an all-reduce begins
    during the backward pass, bucket by bucket, as in torch's DistributedDataParallel and in Paceline's groups that
    average large gradients with torch.distributed; else it begins when all is computed. `driver="ray"` lets groups
    exchange with the server, as that driver does on several machines; without it, a single group needs none.
    """
    assert workers_per_machine >= 1 and steps >= 2 and (server_s is None or server_s >= 0)
    if not (math.isfinite(prediction.iteration_s) and prediction.iteration_s > 0):
        raise InputError(f"an iteration of {prediction.iteration_s:g} s cannot be simulated: it should be above 0")
    strategy = replace(strategy, warm_start=0)
    strategy.check(workers, _batches(prediction) or None)
    size_bytes, threads = prediction.parameter_bytes, max(1, prediction.threads)
    placement = Placement(machine, workers, workers_per_machine, runs_on_gpu(prediction, machine), network)
    if driver == "ray" and not placement.together:
        placement = replace(placement, averaging=_averaging_on_ray(strategy, workers, size_bytes))
    served = exchanges_by_server(strategy, placement)
    compute_s, beside_s = prediction.iteration_s, 0.0
    if served and leaves_updates(strategy):
        compute_s = max(0.01 * compute_s, compute_s - prediction.parts_s.get("update", 0.0))  # that is the server's
    if served and placement.together:
        compute_s, beside_s = compute_s + TASK_S / strategy.push_every, HANDLING_S
    if server_s is None:
        optimizer, payloads = prediction.conditions.get("optimizer", ""), payloads_of(strategy, placement)
        server_s = beside_s + server_seconds(strategy, size_bytes, machine, optimizer, payloads)
    busy_cores: float = placement.on_one * threads
    if served and placement.together:  # the server needs a core at times, and a worker that waits for it needs none
        cycle_s = _cycle_s(strategy, placement, compute_s, size_bytes, server_s)
        busy_cores = workers * (compute_s * threads + server_s / strategy.push_every) / cycle_s
    slower = placement.slowdown(busy_cores)
    return StepModel(
        strategy=strategy,
        placement=placement,
        compute_s=compute_s * slower,
        variation=variation_of(prediction),
        message_bytes=size_bytes,
        server_s=server_s * slower if placement.together and not placement.on_gpu else server_s,
        steps=steps,
        seed=seed,
        hidden_behind_s=_backward_share(prediction) * compute_s * slower if overlap_backward else None,
    )


def _averaging_on_ray(strategy: Strategy, workers: int, size_bytes: int) -> str:
    small = message_sizes(strategy, size_bytes).push_bytes < AVERAGED_FROM_BYTES
    return AT_SERVER if small or averaging_obstacle_on_cluster(strategy, workers) else DIVIDED


def _batches(prediction: Prediction) -> int:
    """Batches per epoch; 0 if the number of samples is not known."""
    return -(-prediction.samples // prediction.batch)


def _backward_share(prediction: Prediction) -> float:
    """The backward pass as a share of an iteration."""
    if "backward" not in prediction.parts_s:
        raise InputError(
            f"the time of the backward pass of {prediction.name} is not known: nothing can overlap with it"
        )
    return prediction.parts_s["backward"] / prediction.iteration_s


def _cycle_s(strategy: Strategy, placement: Placement, compute_s: float, size_bytes: int, server_s: float) -> float:
    """The approximate duration of a step if there are cores for all."""
    messages, every = message_sizes(strategy, size_bytes), strategy.push_every
    network = placement.exchange(messages.fetch_bytes, messages.push_bytes)
    link = Link("to the server", network.latency_s, network.bandwidth, network.shared)
    each = ParameterServer(
        placement.workers,
        compute_s * every,
        messages.fetch_bytes,
        link,
        server_s,
        strategy.overlap,
        messages.push_bytes,
    )
    return (each.synchronous_cycle_s() if strategy.groups == 1 else each.cycle_s()) / every


def variation_of(prediction: Prediction) -> float:
    """The deviation of a step, as a share of it."""
    deviation_s = max(0.0, prediction.high_s - prediction.low_s) / 2 / DEVIATIONS_OF_90_PERCENT
    return min(MOST_VARIATION, deviation_s / prediction.iteration_s)


def leaves_updates(strategy: Strategy) -> bool:
    """Whether a worker leaves updating to the server, where there is one."""
    return not strategy.make_exchange.local_optimizer and not (strategy.local_step and strategy.fetch_every != 1)


def payloads_of(strategy: Strategy, placement: Placement) -> int:
    """How many workers' payloads an update of the server has."""
    if strategy.groups is None:
        return strategy.payloads_per_update(placement.workers)
    return placement.workers // strategy.groups if acts_alone(strategy, placement) else 1


def _epoch_s(found: StepTime, steps: float, strategy: Strategy) -> float:
    """Seconds of an epoch in which each worker makes `steps` steps. A group exchanges at the end of an epoch as well,
    even if fewer than `push_every` steps were made since the last exchange."""
    if strategy.groups is None:
        return steps * found.step_s
    rounds = math.ceil(steps / strategy.push_every)
    return steps * found.computing_s + rounds * strategy.push_every * (found.step_s - found.computing_s)


def _steps_per_epoch(batches: int, workers: int, strategy: Strategy) -> float:
    """Steps of a worker per epoch; where all wait for each other, the last one counts in full."""
    if strategy.full_pass_per_worker:
        return batches
    return math.ceil(batches / workers) if strategy.groups == 1 else batches / workers
