"""What a correction promises, and a check of it: for the built-in ones, and for a custom one before it is trusted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from paceline.errors import Diverged, StrategyError
from paceline.simulation.durations import DurationDistribution
from paceline.simulation.simulation import Simulation, simulated
from paceline.simulation.virtual_cluster import VirtualCluster
from paceline.simulation.virtual_driver import VirtualDriver
from paceline.simulation.virtual_store import VirtualStore
from paceline.step.build import assemble, load_data
from paceline.step.step import Parts
from paceline.strategy.correction import Correction, Late, find_correction
from paceline.strategy.plugin import name_of
from paceline.strategy.presets import find_strategy
from paceline.strategy.strategy import Strategy
from paceline.testing.faults import Fault
from paceline.workload import resolve

SIZE = 1000
WORKERS = 4


@dataclass(frozen=True)
class Promise:
    """One of the promises, and how it was broken if it was."""

    what: str
    broken: str = ""

    @property
    def kept(self) -> bool:
        return not self.broken


def check_correction(correction: str | Callable[..., Tensor]) -> tuple[Promise, ...]:
    """Tries a correction out, named as on the command line or given as a function, alone and in a virtual run.

    None of the promises is about how well it trains.
    """
    place = name_of(correction)
    found = find_correction(place)
    if found is None:
        raise StrategyError("there is nothing to check: the correction is none")
    promises: dict[str, Callable[[], str]] = {
        "returns finite numbers for finite numbers": lambda: _numbers(found),
        "leaves the parameters as they are": lambda: _leaves(found),
        "gives the same for the same": lambda: _repeats(found),
        "keeps what it needs in its state alone": lambda: _separate(found),
        "loses no batch, and the same seed gives the same run": lambda: _trains(place),
    }
    return tuple(Promise(what, _broken(check)) for what, check in promises.items())


def _broken(check: Callable[[], str]) -> str:
    try:
        return check()
    except (StrategyError, Diverged) as error:
        return str(error)


def _vectors(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    gradient, parameters, drift = (torch.randn(SIZE, generator=generator) for _ in range(3))
    return 0.1 * gradient, parameters, parameters + 0.01 * drift


def _state(correction: Correction) -> dict[str, Tensor]:
    return {name: torch.zeros(SIZE) for name in correction.state}


def _shared(correction: Correction) -> dict[str, Tensor]:
    return {name: torch.zeros(SIZE) for name in correction.server_state}


def _corrected(
    correction: Correction, state: dict[str, Tensor], seed: int, staleness: int, shared: dict[str, Tensor] | None = None
) -> Tensor:
    gradient, parameters, fetched = _vectors(seed)
    shared = _shared(correction) if shared is None else shared
    return _correct(correction, gradient, Late(parameters, fetched, staleness, 0, seed, 0.1, state, shared))


def _correct(correction: Correction, gradient: Tensor, late: Late) -> Tensor:
    """As an update calls it: what it can prepare before it has the parameters is prepared."""
    if correction.prepare is not None:
        rooms = torch.empty_like(gradient), torch.empty_like(gradient)
        prepared = correction.prepare(gradient, late.state, late.state, rooms)
        late = late._replace(prepared=prepared, room=(rooms[1], torch.empty_like(gradient)))
    return correction.function(gradient, late)


def _numbers(correction: Correction) -> str:
    state, shared = _state(correction), _shared(correction)
    for staleness in (0, 1, 2, 100):
        for seed in range(5):
            if not torch.isfinite(_corrected(correction, state, seed, staleness, shared)).all():
                return f"with a staleness of {staleness} something is not finite"
    return ""


def _leaves(correction: Correction) -> str:
    gradient, parameters, fetched = _vectors(0)
    before = parameters.clone(), fetched.clone()
    late = Late(parameters, fetched, 3, 0, 0, 0.1, _state(correction), _shared(correction))
    _correct(correction, gradient, late)
    if not torch.equal(parameters, before[0]):
        return "late.parameters are changed: only the gradient may be"
    return "" if torch.equal(fetched, before[1]) else "late.fetched is changed: only the gradient may be"


def _repeats(correction: Correction) -> str:
    results = []
    for _ in range(2):
        state, shared = _state(correction), _shared(correction)
        results.append(torch.stack([_corrected(correction, state, seed, 3, shared) for seed in range(5)]))
    return "" if torch.equal(results[0], results[1]) else "the same calls gave different gradients"


def _separate(correction: Correction) -> str:
    """Two groups' calls in turn give what each alone would, but for what the server's state passes on."""
    alone = _state(correction)
    expected = [_corrected(correction, alone, seed, 3).clone() for seed in range(5)]
    mine, other = _state(correction), _state(correction)
    for seed in range(5):
        got = _corrected(correction, mine, seed, 3).clone()
        _corrected(correction, other, 100 + seed, 7)
        if not torch.equal(got, expected[seed]):
            return "what one group pushes changes what another gets"
    return ""


def _trains(place: str) -> str:
    runs = [_run(place) for _ in range(2)]
    ledger = runs[0].distribution.ledger
    if ledger.applied + ledger.refused != 180:
        return f"{ledger.applied} of 180 batches were applied, {ledger.refused} refused"
    first, second = (run.parameters for run in runs)
    assert first is not None and second is not None
    return "" if first.numpy().tobytes() == second.numpy().tobytes() else "two runs with one seed differ"


def _run(place: str) -> Simulation:
    settings = {"data": "digits", "batch": 8, "epochs": 1, "optimizer": "sgd", "schedule": "constant", "device": "cpu"}
    workload = resolve("dnn", settings)
    parts = assemble(workload, load_data(workload), torch.device("cpu"))
    cluster = VirtualCluster(compute=DurationDistribution("gamma", (100.0, 0.01)))
    strategy = find_strategy("delay-compensated", correction=place)
    return simulate_training(parts, strategy, WORKERS, cluster, on_bad_gradient="skip")


def simulate_training(
    parts: Parts,
    strategy: Strategy,
    workers: int,
    cluster: VirtualCluster | None = None,
    *,
    on_bad_gradient: str = "stop",
    faults: tuple[Fault, ...] = (),
    record: bool = False,
) -> Simulation:
    """Trains the parts' workload on a virtual cluster; with `record` what happened can be replayed."""
    strategy.check(workers, parts.updates_per_epoch)
    gradients = VirtualStore(parts, strategy, workers, record=record)
    try:
        driver = VirtualDriver(
            strategy, workers, cluster or VirtualCluster(), batches=parts.updates_per_epoch,
            epochs=parts.workload.epochs, seed=parts.workload.seed, gradients=gradients,
            on_bad_gradient=on_bad_gradient, faults=faults,
        )  # fmt: skip
        return simulated(driver)
    finally:
        gradients.close()
