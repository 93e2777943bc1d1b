"""Makes a plan: lists what could be done, finds what was wished for, and says why."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter

import numpy as np

from paceline.cluster import Device
from paceline.cost.prediction import Prediction
from paceline.errors import InputError, PacelineError
from paceline.planning.asking import Given, Simulate
from paceline.planning.candidates import STRATEGIES, list_candidates
from paceline.planning.comparisons import Comparison, compare
from paceline.planning.estimate import machines_of
from paceline.planning.forecast import Forecast, Predict
from paceline.planning.front import fill_front, front_of
from paceline.planning.learning import Learning
from paceline.planning.places import MACHINE_HOURS, Places, find_places
from paceline.planning.plan import Alternative, Plan
from paceline.planning.reasons import reasons_for
from paceline.planning.room import is_known
from paceline.planning.search import Mask, Search
from paceline.planning.wish import Wish
from paceline.strategy.strategy import Strategy
from paceline.workload import Workload

SIMULATED_SHARE = 0.2
MOST_SIMULATED = 160
FOR_THE_PICK = 0.7
"""Of what may be simulated; the rest is for what is beside it, and for the front."""
HARDLY_WORSE = 0.005
GENTLER_TRIES = 12


def make_plan(
    workload: Workload,
    places: Places | str,
    wish: Wish,
    *,
    strategies: Sequence[str | Strategy] = STRATEGIES,
    predict: Predict | None = None,
    simulate: Simulate | None = None,
    learning: Learning | None = None,
) -> Plan:
    """`predict`, `simulate` and `learning` stand for computing, exchanging and converging; each has a usual one."""
    began_s = perf_counter()
    places = find_places(places, spot=wish.spot) if isinstance(places, str) else places
    if wish.budget is not None and places.currency == MACHINE_HOURS:
        raise InputError(f"--budget needs prices, and no machine of {places.name} has one: write price = … for it")
    forecast = Forecast(workload, predict or usual_predict(workload))
    forecast.begin(list(dict.fromkeys(place.device for place in places.places)))
    samples = _samples(forecast)
    if wish.target_accuracy is not None:
        learning = learning or Learning(workload, wish.target_accuracy, samples)
    search = Search(
        list_candidates(workload, places, samples, strategies), forecast, simulate or usual_simulate(),
        learning if learning is not None else Given(wish.epochs or workload.epochs),
        samples=samples, spot=wish.spot, machine_hours=places.currency == MACHINE_HOURS,
        repeat_dropped=learning is None,
    )  # fmt: skip
    candidates = int(search.alive.sum())
    near = np.array([learning is not None or c.is_near(workload.batch) for c in search.candidates], dtype=bool)
    pick, met, compared = _chosen(search, wish, near, simulations_for(candidates))
    sure = map(int, np.flatnonzero(search.sure & search.alive))
    made = {number: _alternative(search, number, workload, learning) for number in sure}
    plan = Plan(
        workload=workload, cluster=places.name, wish=wish, met=met, pick=made[pick], reasons=(),
        front=front_of(list(made.values())), simulated=tuple(made.values()), candidates=candidates,
        excluded=dict(search.excluded), predictions=len(forecast.predictions), currency=places.currency,
        prediction=_prediction(search, pick), learned=learning.results if learning is not None else (),
        conditions=_conditions(places, learning, search.simulations, perf_counter() - began_s),
    )  # fmt: skip
    others = [(one, None if one.number is None else made[one.number]) for one in compared]
    memory_known = is_known(search.places[pick])
    return replace(
        plan, reasons=tuple(reasons_for(plan, others, beyond_caution=not near[pick], memory_known=memory_known))
    )


def simulations_for(candidates: int) -> int:
    """How many of so many candidates may be simulated."""
    return max(1, min(MOST_SIMULATED, math.floor(SIMULATED_SHARE * candidates)))


def usual_predict(workload: Workload) -> Predict:
    """The cost model's; what the data are like is looked up once."""
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]  # comes with scikit-learn

    from paceline.cost.predicting import predict
    from paceline.cost.workload_tracing import data_shape_of

    shape = data_shape_of(workload)

    def predicted(asked: Workload, device: Device) -> Prediction:
        # Hundreds of small matrices: several threads would spend most of the time meeting each other.
        with threadpool_limits(limits=1, user_api="blas"):
            return predict(asked, device, data=shape)

    return predicted


def usual_simulate() -> Simulate:
    from paceline.simulation.on_cluster import simulate_on

    return simulate_on


def _samples(forecast: Forecast) -> int:
    """Of an epoch; nothing can be planned before one device is predicted."""
    if not forecast.predictions:
        raise InputError(next(iter(forecast.failures.values()), "no machine has a device to plan for"))
    samples = next(iter(forecast.predictions.values())).samples
    if not samples:
        raise InputError("how many samples an epoch has is not known: name the data with --data")
    return samples


def _everyone(search: Search) -> Mask:
    return np.ones(len(search.candidates), dtype=bool)


def _chosen(search: Search, wish: Wish, near: Mask, limit: int) -> tuple[int, bool, list[Comparison]]:
    """The pick's number, whether it keeps the wish, and what stands beside it; fills the front on the way."""
    search.limit = max(1, round(FOR_THE_PICK * limit))
    pick, met = _pick(search, wish, near, limit)
    search.limit = limit
    compared = _compared(search, wish, near, pick, met)
    fill_front(search, learnt_only=not isinstance(search.epochs, Given))
    search.limit = 0  # whatever came to light since then counts, and nothing more is simulated
    last, met = _pick(search, wish, near, 0)
    if last != pick:
        pick, compared = last, _compared(search, wish, near, last, met)
    return pick, met, compared


def _compared(search: Search, wish: Wish, near: Mask, pick: int, met: bool) -> list[Comparison]:
    among = near if near[pick] else _everyone(search)
    return compare(search, pick, wish.values if met else wish.distances, among)


def _pick(search: Search, wish: Wish, near: Mask, limit: int) -> tuple[int, bool]:
    """The number of the pick, and whether it is what was wished for. The nearest may take all of the limit."""
    for among in (near, _everyone(search)):
        found = search.least(wish.values, among)
        if found is not None:
            return search.gentler(found, wish.values, among, HARDLY_WORSE, GENTLER_TRIES), True
    search.limit = limit
    nearest = search.least(wish.distances, _everyone(search))
    if nearest is None:
        counts = "; ".join(f"{count:,} {reason}" for reason, count in search.excluded.items())
        raise PacelineError(f"there is nothing to propose: {counts or 'no candidates'}")
    return nearest, wish.keeps(*search.time_and_money(nearest))


def _prediction(search: Search, number: int) -> Prediction:
    return search.forecast.predictions[search.key_of(number)]


def _alternative(search: Search, number: int, workload: Workload, learning: Learning | None) -> Alternative:
    candidate, outcome, prediction = search.candidates[number], search.outcomes[number], _prediction(search, number)
    time_s, money = search.time_and_money(number)
    computing = max(0.0, 1.0 - outcome.waiting_share - outcome.communication_share)
    low, high = (1 + computing * (each / prediction.iteration_s - 1) for each in (prediction.low_s, prediction.high_s))
    return Alternative(
        candidate=candidate,
        machines=machines_of(candidate, search.places[number]),
        epochs=search.epochs_of(number),
        time_s=time_s,
        low_s=time_s * low,
        high_s=time_s * high,
        money=money,
        under_way=candidate.samples_under_way / workload.batch,
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
        accuracy=learning.result(candidate).accuracy if learning is not None else math.nan,
    )


def _conditions(places: Places, learning: Learning | None, simulated: int, wall_s: float) -> dict[str, str]:
    dates = places.price_dates
    return {
        "simulated": str(simulated),
        "prices of": dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}" if dates else "not known",
        **({"learnt from": learning.sample_words} if learning is not None else {}),
        "planned in": f"{wall_s:.1f} s",
    }
