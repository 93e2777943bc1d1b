"""The pick is the best there is, and few candidates are simulated to know it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest

from paceline.cluster import Cluster
from paceline.planning import search
from paceline.planning.candidates import list_candidates
from paceline.planning.forecast import Forecast
from paceline.planning.machine_options import options_of
from paceline.planning.objective import Objective
from paceline.planning.planning import default_simulate, make_plan
from paceline.planning.protocols import FixedEpochs, SimulationResult
from paceline.planning.search import Search
from tests.planning.invented import WORKLOAD, InventedPredictions, invented_cluster, invented_predictions

EPOCHS = 10
STRATEGIES = ("sync", "downpour", "delay-compensated", "mixed", "softsync", "local-sgd")


def clusters(count: int, slow: int) -> list:
    """Seeds of invented clusters: the second tier has the first of them, `make soak` the others."""
    return [pytest.param(seed, marks=pytest.mark.slow if seed < slow else pytest.mark.soak) for seed in range(count)]


@dataclass
class Exhaustive:
    """Every candidate simulated."""

    found: Search
    time_s: np.ndarray
    money: np.ndarray
    cautious: np.ndarray

    def best(self, objective: Objective) -> float:
        """By the plan's rule: among those close to the workload if one meets the objective, else among all."""
        values = objective.values(self.time_s, self.money)
        near = np.where(self.cautious, values, np.inf)
        return float(near.min()) if np.isfinite(near.min()) else float(values.min())


def exhaustive(cluster: Cluster, predictions: InventedPredictions, simulate) -> Exhaustive:
    places = options_of(cluster)
    forecast = Forecast(WORKLOAD, predictions)
    forecast.begin(list(dict.fromkeys(place.device for place in places.places)))
    listed = list_candidates(WORKLOAD, places, predictions.samples, STRATEGIES)
    found = Search(
        listed, forecast, simulate, FixedEpochs(EPOCHS), samples=predictions.samples, spot=False, machine_hours=False,
        limit=10**9,
    )  # fmt: skip
    both = np.array([
        found.time_and_money(i) if found.settle(i) else (np.inf, np.inf) for i in range(len(found.candidates))
    ])  # fmt: skip
    near = np.array([c.is_close_to(WORKLOAD.batch) for c in found.candidates], dtype=bool)
    return Exhaustive(found, both[:, 0], both[:, 1], near)


def wishes(all_of_them: Exhaustive) -> dict[str, Objective]:
    fastest, cheapest = float(all_of_them.time_s.min()), float(all_of_them.money.min())
    return {
        "neither": Objective(epochs=EPOCHS),
        "a deadline": Objective(epochs=EPOCHS, deadline_s=4 * fastest),
        "a close deadline": Objective(epochs=EPOCHS, deadline_s=1.1 * fastest),
        "a budget": Objective(epochs=EPOCHS, budget=2 * cheapest),
        "both": Objective(epochs=EPOCHS, deadline_s=6 * fastest, budget=6 * cheapest),
    }


@pytest.fixture
def short_simulations(monkeypatch):
    monkeypatch.setattr(search, "TOTAL_STEPS", 400)
    monkeypatch.setattr(search, "MIN_STEPS", 10)


def check(seed: int, simulate) -> list[tuple[str, float, float, int]]:
    """(objective, how much worse than the best, share simulated, candidates); at least three of each machine."""
    cluster, predictions = invented_cluster(seed), invented_predictions(seed)
    cluster = replace(cluster, machines=tuple(replace(m, count=max(3, m.count)) for m in cluster.machines))
    all_of_them = exhaustive(cluster, predictions, simulate)
    figures = []
    for name, objective in wishes(all_of_them).items():
        best = all_of_them.best(objective)
        plan = make_plan(
            WORKLOAD, options_of(cluster), objective, strategies=STRATEGIES, predict=predictions, simulate=simulate
        )  # fmt: skip
        if math.isinf(best):
            assert not plan.met, name
            continue
        assert plan.met, name
        value = float(objective.values(np.array([plan.pick.time_s]), np.array([plan.pick.money]))[0])
        count = int(np.isfinite(all_of_them.time_s).sum())
        figures.append((name, value / best - 1, len(plan.simulated) / count, count))
    return figures


@pytest.mark.parametrize("seed", clusters(10, slow=3))
def test_the_pick_is_within_one_percent_of_the_best_simulation(seed, short_simulations):
    for name, worse, share, count in check(seed, default_simulate()):
        print(f"cluster {seed}, {name}: {worse:.3%} worse, {share:.1%} of {count} simulated")
        assert worse <= 0.01, name
        assert share <= 0.2, name


@dataclass(frozen=True)
class Shifted:
    """An outcome whose times differ from the closed form by so much."""

    of: SimulationResult
    factor: float

    @property
    def step_s(self) -> float:
        return self.of.step_s * self.factor

    @property
    def epoch_s(self) -> float:
        return self.of.epoch_s * self.factor

    @property
    def samples_per_s(self) -> float:
        return self.of.samples_per_s / self.factor

    def __getattr__(self, name: str) -> object:
        return getattr(self.of, name)


@pytest.mark.parametrize("seed", clusters(3, slow=1))
def test_the_pick_is_good_even_if_the_closed_form_is_wrong(seed, short_simulations):
    """The search learns by how much: a strategy is faster or slower by up to a third, others not."""
    real = default_simulate()
    factors = dict(zip(STRATEGIES, (1.0, 0.9, 1.3, 0.95, 1.1, 1.02), strict=True))

    def simulate(prediction, machine, workers, strategy, **options):
        factor = factors[strategy.name] * (1 + 0.004 * math.sin(97 * workers + prediction.batch))
        return Shifted(real(prediction, machine, workers, strategy, **options), factor if workers > 1 else 1.0)

    for name, worse, share, _ in check(seed, simulate):
        assert worse <= 0.01, name
        assert share <= 0.2, name


@pytest.mark.parametrize("seed", range(4))
def test_a_better_candidate_found_by_a_comparison_becomes_the_pick(seed, short_simulations):
    """A strategy is twice as fast as any bound foresaw, which is seen only when the pick is compared with it."""
    real = default_simulate()

    def simulate(prediction, machine, workers, strategy, **options):
        factor = 0.5 if strategy.name == "softsync" else 1.0
        return Shifted(real(prediction, machine, workers, strategy, **options), factor)

    objective = Objective(epochs=EPOCHS)
    plan = make_plan(
        WORKLOAD, options_of(invented_cluster(seed)), objective, predict=invented_predictions(seed), simulate=simulate
    )  # fmt: skip
    near = [one for one in plan.simulated if one.candidate.is_close_to(WORKLOAD.batch)]
    least = min(one.time_s * one.money for one in near)
    assert plan.pick.time_s * plan.pick.money <= 1.006 * least
    assert not any("not picked without a target accuracy" in line and "1 of the" in line for line in plan.reasons)


def test_one_worker_is_not_simulated():
    workers = []
    real = default_simulate()

    def simulate(prediction, machine, count, strategy, **options):
        workers.append(count)
        return real(prediction, machine, count, strategy, **options)

    plan = make_plan(
        WORKLOAD, options_of(invented_cluster(5)), Objective(epochs=1), predict=invented_predictions(5),
        simulate=simulate,
    )  # fmt: skip
    assert 1 not in workers and len(workers) == int(plan.conditions["simulated"]) <= 0.2 * plan.candidates
    alone = [one for one in plan.simulated if one.candidate.workers == 1]
    assert alone and all(one.step_s == one.iteration_s and one.efficiency == 1 for one in alone)


def test_nothing_is_simulated_twice():
    asked = []
    real = default_simulate()

    def simulate(prediction, machine, workers, strategy, **options):
        asked.append((machine.name, workers, strategy.name, prediction.batch, prediction.precision, str(options)))
        return real(prediction, machine, workers, strategy, **options)

    plan = make_plan(
        WORKLOAD,
        options_of(invented_cluster(3)),
        Objective(epochs=1),
        predict=invented_predictions(3),
        simulate=simulate,
    )
    assert len(asked) == len(set(asked)) == int(plan.conditions["simulated"])


def test_what_does_not_fit_in_memory_is_never_proposed():
    cluster = invented_cluster(9)
    predictions = replace(invented_predictions(9), kept_bytes=60_000_000)
    plan = make_plan(WORKLOAD, options_of(cluster), Objective(epochs=1), predict=predictions)
    rooms = {m.machine.devices[0].device.name: m.machine.devices[0].device.memory_bytes for m in cluster.machines}
    undivided = [one for one in plan.simulated if one.candidate.pipeline == 1]
    assert undivided
    for one in undivided:
        need = 4 * predictions.parameter_bytes + one.candidate.batch * predictions.kept_bytes
        assert need <= 0.9 * rooms[one.candidate.device]
    assert plan.excluded["do not fit in memory"] > 0


def test_few_predictions_are_made():
    predictions = InventedPredictions(samples=1_281_167)
    plan = make_plan(WORKLOAD, "catalogue", Objective(epochs=1), predict=predictions, strategies=("sync",))
    assert plan.predictions == predictions.calls <= 80
    assert plan.prediction.device == plan.pick.candidate.device
