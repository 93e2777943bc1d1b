"""A workload with more and more workers, on each kind of machine of a cluster or on one of the catalogue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from paceline.cluster import Cluster, Device, Link, Machine
from paceline.cost.prediction import Prediction
from paceline.errors import InputError, StrategyError
from paceline.simulate.on_cluster import ClusterOutcome, simulate_on
from paceline.strategy.strategy import Strategy
from paceline.workload import Workload

Predict = Callable[[Workload, Device], Prediction]


@dataclass(frozen=True)
class MachineScaling:
    """One kind of machine."""

    machine: str
    workers_per_machine: int
    network: str
    """Between machines; nothing where one is enough for all."""
    price_date: str
    prediction: Prediction
    """Of a step of one worker by itself."""
    outcomes: tuple[ClusterOutcome, ...]
    left_out: tuple[str, ...] = ()
    """Why there is no outcome for some numbers of workers."""


@dataclass(frozen=True)
class Scaling:
    workload: Workload
    cluster: str
    strategy: Strategy
    own_pass: bool
    machines: tuple[MachineScaling, ...]


def scale(
    workload: Workload,
    cluster: Cluster | Machine,
    strategy: Strategy,
    workers: Sequence[int],
    *,
    per_machine: int | None = None,
    own_pass: bool = False,
    predict: Predict | None = None,
) -> Scaling:
    """`per_machine` workers share a machine; if that is not given, there is one for each of its devices."""
    if not workers:
        raise InputError("name at least one number of workers")
    if isinstance(cluster, Machine):
        kinds: list[tuple[Machine, int | None, Link | None]] = [(cluster, None, cluster.network)]
    else:
        kinds = [(each.machine, each.count, cluster.network) for each in cluster.machines]
    own_pass = own_pass or strategy.own_pass
    made = []
    for machine, count, network in kinds:
        device, devices = worker_device(machine)
        found, each = (predict or usual_predict())(workload, device), per_machine or devices
        outcomes, left_out = [], []
        for number in workers:
            try:
                outcome = simulate_on(
                    found, machine, number, strategy,
                    network=network, workers_per_machine=each, own_pass=own_pass, seed=workload.seed,
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
            machine.name, each, between, machine.price_date, found, tuple(outcomes), tuple(left_out)
        )  # fmt: skip
        made.append(kind)
    if not any(kind.outcomes for kind in made):
        raise InputError(made[0].left_out[0])
    return Scaling(workload, cluster.name, strategy, own_pass, tuple(made))


def worker_device(machine: Machine) -> tuple[Device, int]:
    """What a worker computes on, and how many of it there are: a GPU where there is one."""
    kind = "gpu" if machine.count("gpu") else "cpu"
    return next((each.device, each.count) for each in machine.devices if each.device.kind == kind)


def usual_predict() -> Predict:
    """The cost model's."""
    from paceline.cost.predicting import predict

    return predict


def _are(count: int) -> str:
    return "is 1" if count == 1 else f"are {count}"
