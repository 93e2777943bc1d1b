"""A workload with more and more workers, on each kind of machine of a cluster or on one of the catalogue."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from paceline.cluster import Cluster, Device, Link, Machine
from paceline.cost.prediction import Prediction
from paceline.errors import InputError, StrategyError
from paceline.notebook import NotebookRecord
from paceline.simulation.on_cluster import ClusterOutcome, simulate_on, step_model
from paceline.simulation.placement import Placement
from paceline.simulation.step_trace import trace_of
from paceline.strategy.strategy import Strategy
from paceline.trace import Trace
from paceline.workload import Workload

MOST_PER_MACHINE = 10_000


@dataclass(frozen=True)
class MachineScaling:
    """One kind of machine."""

    machine: str
    workers_per_machine: int
    network: str
    """Between machines; nothing where one is enough for all."""
    price_date: str
    prediction: Prediction
    """The step of one worker alone."""
    outcomes: tuple[ClusterOutcome, ...]
    left_out: tuple[str, ...] = ()
    """Reasons why some numbers of workers have no outcome."""


@dataclass(frozen=True, repr=False)
class Scaling(NotebookRecord):
    """A workload simulated with several numbers of workers, on each kind of machine."""

    workload: Workload
    cluster: str
    strategy: Strategy
    machines: tuple[MachineScaling, ...]
    overlap_backward: bool = False
    """Whether all-reduces begin during the backward pass."""

    def facts(self) -> dict[str, Any]:
        return {"network": self.workload.network, "cluster": self.cluster, "strategy": self.strategy.name}

    def table(self) -> list[dict[str, Any]]:
        return [{"machine": kind.machine, **vars(outcome)} for kind in self.machines for outcome in kind.outcomes]


def scale(
    workload: Workload,
    cluster: Cluster | Machine,
    strategy: Strategy,
    workers: Sequence[int],
    *,
    per_machine: int | None = None,
    overlap_backward: bool = False,
) -> Scaling:
    """`per_machine` workers share a machine; if that is not given, there is one for each of its devices.

    Where they are more than its processors, they share their cores, and have as many threads as that leaves them.
    """
    if not workers:
        raise InputError("name at least one number of workers")
    if per_machine is not None and not 1 <= per_machine <= MOST_PER_MACHINE:
        raise InputError(f"per-machine={per_machine:,} should be from 1 to {MOST_PER_MACHINE:,} workers per machine")
    made = []
    for machine, count, network in _kinds(cluster):
        each = per_machine or worker_device(machine)[1]
        predicted = _predictions(workload, machine)
        outcomes, left_out = [], []
        for number in workers:
            try:
                outcome = simulate_on(
                    predicted(min(number, each)), machine, number, strategy, network=network, workers_per_machine=each,
                    seed=workload.seed, overlap_backward=overlap_backward,
                )  # fmt: skip
            except StrategyError as error:
                left_out.append(str(error))
                continue
            if count is None or outcome.machines <= count:
                outcomes.append(outcome)
            else:
                left_out.append(f"{number} workers need {outcome.machines} × {machine.name}, there {_are(count)}")
        between = network.name if network is not None and any(o.machines > 1 for o in outcomes) else ""
        kind = MachineScaling(
            machine.name, each, between, machine.price_date, predicted(1), tuple(outcomes), tuple(left_out)
        )  # fmt: skip
        made.append(kind)
    if not any(kind.outcomes for kind in made):
        raise InputError(made[0].left_out[0])
    return Scaling(workload, cluster.name, strategy, tuple(made), overlap_backward)


def traces(scaling: Scaling, cluster: Cluster | Machine) -> dict[str, Trace]:
    """The first steps of every outcome, by its name, a row for each worker."""
    found, workload = {}, scaling.workload
    for each, (machine, _, network) in zip(scaling.machines, _kinds(cluster), strict=True):
        predicted = _predictions(workload, machine)
        for outcome in each.outcomes:
            model = step_model(
                predicted(min(outcome.workers, each.workers_per_machine)), machine, outcome.workers, scaling.strategy,
                network=network, workers_per_machine=each.workers_per_machine, seed=workload.seed,
                overlap_backward=scaling.overlap_backward,
            )  # fmt: skip
            workers = f"{outcome.workers} worker{'s' * (outcome.workers != 1)}"
            found[f"{workers} on {machine.name}"] = trace_of(model)
    return found


def _kinds(cluster: Cluster | Machine) -> list[tuple[Machine, int | None, Link | None]]:
    """Each kind of machine, how many there are of it, and the network between them."""
    if isinstance(cluster, Machine):
        return [(cluster, None, cluster.network)]
    return [(each.machine, each.count, cluster.network) for each in cluster.machines]


def worker_device(machine: Machine) -> tuple[Device, int]:
    """The device of a worker, a GPU if there is one, and how many the machine has."""
    kind = "gpu" if machine.count("gpu") else "cpu"
    return next((each.device, each.count) for each in machine.devices if each.device.kind == kind)


def _predictions(workload: Workload, machine: Machine) -> Callable[[int], Prediction]:
    """From how many workers share a machine to the step of one of them, each predicted once.

    Where they are more than its processors, together they have no more threads than it has cores.
    """
    from paceline.cost.predicting import predict

    device, devices = worker_device(machine)
    cores = Placement(machine, 1, 1, on_gpu=False).cores

    @functools.cache
    def with_threads(threads: int) -> Prediction:
        return predict(replace(workload, threads=threads), device)

    def predicted(workers: int) -> Prediction:
        alone = with_threads(workload.threads)
        each = max(1, cores // workers) if cores is not None and workers > devices else alone.threads
        return with_threads(each) if each < alone.threads else alone

    return predicted


def _are(count: int) -> str:
    return "is 1" if count == 1 else f"are {count}"
