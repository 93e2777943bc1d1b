"""Makes a plan: lists the candidates, finds the best for an objective, and explains the choice."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from time import perf_counter

import numpy as np

from paceline.cluster import Device
from paceline.cost.prediction import Prediction
from paceline.errors import InputError, PacelineError
from paceline.planning.candidates import STRATEGIES, list_candidates
from paceline.planning.comparisons import BestOther, compare_pick
from paceline.planning.divisions import Divided, Predict
from paceline.planning.estimate import machines_needed
from paceline.planning.forecast import Forecast
from paceline.planning.front import fill_front, front_of
from paceline.planning.learning import Learning
from paceline.planning.machine_options import MACHINE_HOURS, MachineOptions, find_machine_options
from paceline.planning.memory_fit import CONTEXT_BYTES, MEMORY_SHARE, is_known
from paceline.planning.objective import Objective
from paceline.planning.plan import Alternative, Plan
from paceline.planning.protocols import FixedEpochs, Simulate
from paceline.planning.reasons import reasons_for
from paceline.planning.search import Mask, Search
from paceline.simulation.divided_prediction import DividedPrediction
from paceline.simulation.pipeline_prediction import PipelinePrediction
from paceline.strategy.strategy import Strategy
from paceline.workload import Workload

SIMULATED_SHARE = 0.2
MAX_SIMULATED = 160
PICK_SHARE = 0.7
"""Share of the simulations for finding the pick; the rest is for comparisons and the front."""
TOLERANCE = 0.005
MAX_TRIES = 12


def make_plan(
    workload: Workload,
    places: MachineOptions | str,
    objective: Objective,
    *,
    strategies: Sequence[str | Strategy] = STRATEGIES,
    predict: Predict | None = None,
    simulate: Simulate | None = None,
    learning: Learning | None = None,
) -> Plan:
    """`predict`, `simulate` and `learning` model compute, exchange and convergence; each has a default."""
    began_s = perf_counter()
    places = find_machine_options(places, spot=objective.spot) if isinstance(places, str) else places
    if objective.budget is not None and places.currency == MACHINE_HOURS:
        raise InputError(f"`budget` needs prices, and no machine of {places.name} has one: write price = … for it")
    forecast = Forecast(workload, predict or default_predict(workload))
    forecast.begin(list(dict.fromkeys(place.device for place in places.places)))
    samples = _samples(forecast)
    if objective.target_accuracy is not None:
        learning = learning or Learning(workload, objective.target_accuracy, samples)
    search = Search(
        list_candidates(workload, places, samples, strategies, _too_large(forecast)),
        forecast, simulate or default_simulate(),
        learning if learning is not None else FixedEpochs(objective.epochs or workload.epochs),
        samples=samples, spot=objective.spot, machine_hours=places.currency == MACHINE_HOURS,
        repeat_dropped=learning is None,
    )  # fmt: skip
    candidates = int(search.alive.sum())
    near = np.array([learning is not None or c.is_close_to(workload.batch) for c in search.candidates], dtype=bool)
    pick, met, compared = _chosen(search, objective, near, simulations_for(candidates))
    sure = map(int, np.flatnonzero(search.sure & search.alive))
    made = {number: _alternative(search, number, workload, learning) for number in sure}
    division = _division(search, pick)
    plan = Plan(
        workload=workload, cluster=places.name, objective=objective, met=met, pick=made[pick],
        machine=search.places[pick].machine, reasons=(),
        front=front_of(list(made.values())), simulated=tuple(made.values()), candidates=candidates,
        excluded=dict(search.excluded), predictions=len(forecast.predictions), currency=places.currency,
        prediction=_prediction(search, pick), learned=learning.results if learning is not None else (),
        pipeline=division if isinstance(division, PipelinePrediction) else None,
        divided=division if isinstance(division, DividedPrediction) else None,
        conditions=_conditions(places, learning, search.simulations, perf_counter() - began_s),
    )  # fmt: skip
    others = [(one, None if one.number is None else made[one.number]) for one in compared]
    memory_known = is_known(search.places[pick])
    return replace(
        plan, reasons=tuple(reasons_for(plan, others, far_from_workload=not near[pick], memory_known=memory_known))
    )


def simulations_for(candidates: int) -> int:
    """The number of candidates that may be simulated."""
    return max(1, min(MAX_SIMULATED, math.floor(SIMULATED_SHARE * candidates)))


def default_predict(workload: Workload) -> Predict:
    """Predicts with the cost model; the shape of the data is looked up once."""
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]  # comes with scikit-learn

    from paceline.cost.predicting import Traces, predict
    from paceline.cost.workload_tracing import data_shape_of

    shape, traces = data_shape_of(workload), Traces()

    def predicted(asked: Workload, device: Device, *, tensor: int | None = None) -> Prediction:
        step = "auto" if tensor is None else "plain"
        # Hundreds of small matrices: several threads would mostly wait for each other.
        with threadpool_limits(limits=1, user_api="blas"):
            return predict(asked, device, step=step, data=shape, traces=traces, tensor=tensor or 1)

    return predicted


def default_simulate() -> Simulate:
    from paceline.simulation.on_cluster import simulate_on

    return simulate_on


def _too_large(forecast: Forecast) -> Callable[[Device], bool]:
    """Whether the workload, with its own batch, needs more memory than a device has."""

    def too_large(device: Device) -> bool:
        made = forecast.predict(device, forecast.workload.batch, forecast.workload.precision)
        room = device.memory_bytes
        return made is not None and room is not None and made.memory_bytes + CONTEXT_BYTES > MEMORY_SHARE * room

    return too_large


def _samples(forecast: Forecast) -> int:
    """Samples per epoch, from any prediction."""
    if not forecast.predictions:
        raise InputError(next(iter(forecast.failures.values()), "no machine has a device to plan for"))
    samples = next(iter(forecast.predictions.values())).samples
    if not samples:
        raise InputError("the number of samples per epoch is not known: name the data with `data`")
    return samples


def _all_candidates(search: Search) -> Mask:
    return np.ones(len(search.candidates), dtype=bool)


def _chosen(search: Search, objective: Objective, near: Mask, limit: int) -> tuple[int, bool, list[BestOther]]:
    """The pick's number, whether it meets the objective, and its comparisons; also fills the front."""
    search.limit = max(1, round(PICK_SHARE * limit))
    pick, met = _pick(search, objective, near, limit)
    search.limit = limit
    compared = _compared(search, objective, near, pick, met)
    fill_front(search, learned_only=not isinstance(search.epochs, FixedEpochs))
    search.limit = 0  # pick again with everything known by now, without further simulations
    last, met = _pick(search, objective, near, 0)
    if last != pick:
        pick, compared = last, _compared(search, objective, near, last, met)
    return pick, met, compared


def _compared(search: Search, objective: Objective, near: Mask, pick: int, met: bool) -> list[BestOther]:
    among = near if near[pick] else _all_candidates(search)
    return compare_pick(search, pick, objective.values if met else objective.distances, among)


def _pick(search: Search, objective: Objective, near: Mask, limit: int) -> tuple[int, bool]:
    """The pick's number, and whether it meets the objective. The search for the nearest may use all simulations."""
    for among in (near, _all_candidates(search)):
        found = search.least(objective.values, among)
        if found is not None:
            return search.less_stale(found, objective.values, among, TOLERANCE, MAX_TRIES), True
    search.limit = limit
    nearest = search.least(objective.distances, _all_candidates(search))
    if nearest is None:
        counts = "; ".join(f"{count:,} {reason}" for reason, count in search.excluded.items())
        raise PacelineError(f"no plan is possible: {counts or 'no candidates'}")
    return nearest, objective.keeps(*search.time_and_money(nearest))


def _prediction(search: Search, number: int) -> Prediction:
    return search.forecast.predictions[search.key_of(number)]


def _division(search: Search, number: int) -> Divided | None:
    if not search.candidates[number].is_divided:
        return None
    made = search.forecast.divided(search.candidates[number], search.places[number])
    assert not isinstance(made, str), "it was predicted before"
    return made


def _alternative(search: Search, number: int, workload: Workload, learning: Learning | None) -> Alternative:
    candidate, outcome, prediction = search.candidates[number], search.outcomes[number], _prediction(search, number)
    time_s, money = search.time_and_money(number)
    computing = max(0.0, 1.0 - outcome.waiting_share - outcome.communication_share)
    low, high = (1 + computing * (each / prediction.iteration_s - 1) for each in (prediction.low_s, prediction.high_s))
    return Alternative(
        candidate=candidate,
        machines=machines_needed(candidate, search.places[number]),
        epochs=search.epochs_of(number),
        time_s=time_s,
        low_s=time_s * low,
        high_s=time_s * high,
        money=money,
        in_flight=candidate.samples_in_flight / workload.batch,
        iteration_s=prediction.iteration_s,
        step_s=outcome.step_s,
        epoch_s=time_s / search.epochs_of(number),
        samples_per_s=outcome.samples_per_s,
        efficiency=outcome.efficiency,
        waiting_share=outcome.waiting_share,
        communication_share=outcome.communication_share,
        server_share=outcome.server_share,
        staleness=outcome.staleness_mean,
        bound=outcome.bound,
        accuracy=learning.result(candidate.undivided).accuracy if learning is not None else math.nan,
    )


def _conditions(places: MachineOptions, learning: Learning | None, simulated: int, wall_s: float) -> dict[str, str]:
    dates = places.price_dates
    return {
        "simulated": str(simulated),
        "prices of": dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}" if dates else "not known",
        **({"learned from": learning.sample_words} if learning is not None else {}),
        "planned in": f"{wall_s:.1f} s",
    }
