"""Explains a plan in sentences derived from its numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from paceline.formatting import percent
from paceline.planning.plan import Alternative, Plan

if TYPE_CHECKING:
    from paceline.planning.comparisons import BestOther

NOTABLE = 0.2
"""Lost share of a worker's time that is worth mentioning."""
NOTICEABLE = 0.01


def time_words(seconds: float) -> str:
    """`3.2 h`, `14 min`, `2.5 days`."""
    unit_s, name = _unit_of(seconds)
    return f"{seconds / unit_s:,.0f} years" if name == "years" else f"{seconds / unit_s:,.3g} {name}"


def range_words(low_s: float, high_s: float) -> str:
    """`1.97 to 4.2 days`: both in the unit of the longer."""
    unit_s, name = _unit_of(high_s)
    return f"{low_s / unit_s:,.3g} to {high_s / unit_s:,.3g} {name}"


def _unit_of(seconds: float) -> tuple[float, str]:
    if 0 < seconds < 1:
        return 1e-3, "ms"
    for most, unit_s, name in ((120, 1.0, "s"), (7200, 60.0, "min"), (172800, 3600.0, "h"), (86.4e6, 86400.0, "days")):
        if seconds < most:
            return unit_s, name
    return 365 * 86400.0, "years"


def money_words(money: float, currency: str) -> str:
    return f"{amount_words(money)} {currency}"


def amount_words(money: float) -> str:
    return f"{money:,.2f}" if money >= 0.01 or not money else "under 0.01"


def batches_words(batches: float) -> str:
    """`0.5`, `16`, `19,968`."""
    return f"{batches:,.0f}" if batches >= 100 else f"{batches:.3g}"


def reasons_for(
    plan: Plan,
    comparisons: list[tuple[BestOther, Alternative | None]],
    *,
    far_from_workload: bool,
    memory_known: bool = True,
) -> list[str]:
    """The rule of the pick, its bottleneck, the alternatives, and the uncertainties."""
    return [
        headline(plan),
        *_convergence_risk(plan, far_from_workload),
        _bound(plan.pick),
        *_shares(plan),
        *_comparisons(plan, comparisons),
        *_uncertainties(plan),
        *([] if memory_known else [f"it may not fit: the memory of {plan.pick.candidate.device} is not known"]),
    ]


def headline(plan: Plan) -> str:
    """The rule of the pick; or that nothing meets the objective."""
    cost, time = money_words(plan.pick.money, plan.currency), time_words(plan.pick.time_s)
    deadline, budget = plan.objective.deadline_s is not None, plan.objective.budget is not None
    if not plan.met:
        kind = "nearest" if deadline and budget else "fastest" if deadline else "cheapest"
        return f"no plan is within {_objective(plan)}: the {kind} takes {time} and {cost}"
    if deadline:
        return f"the cheapest within {_objective(plan)}: {cost} in {time}"
    if budget:
        return f"the fastest within {_objective(plan)}: {time} for {cost}"
    return (
        f"the best balance, with the smallest time × cost: {time} for {cost}; faster plans cost more in proportion, "
        "cheaper ones take longer"
    )


def _objective(plan: Plan) -> str:
    deadline, budget = plan.objective.deadline_s, plan.objective.budget
    words = [time_words(deadline)] if deadline is not None else []
    return " and ".join([*words, *([f"{budget:,.6g} {plan.currency}"] if budget is not None else [])])


def _convergence_risk(plan: Plan, far: bool) -> list[str]:
    """Whether the pick may converge differently from the workload, or a faster one was rejected for that."""
    in_flight = f"{batches_words(plan.pick.in_flight)} of the workload's batches are in flight"
    if far and plan.met:
        return [
            f"{in_flight}: no plan with fewer is within {_objective(plan)}; whether it converges as well is not known "
            "(plan for a target accuracy to find out)"
        ]
    if far:
        near = [one for one in plan.simulated if one.candidate.is_close_to(plan.workload.batch)]
        other = min(near, key=lambda one: _distance(plan, one), default=None)
        instead = "" if other is None else f"; the best with fewer, {other}, {_difference(plan.pick, other)}"
        return [f"{in_flight}; whether it converges as well is not known without a target accuracy{instead}"]
    other = min(plan.simulated, key=lambda one: _value(plan, one))
    if not plan.met or _value(plan, other) * (1 + NOTICEABLE) >= _value(plan, plan.pick):
        return []
    return [
        f"{other}, {_difference(plan.pick, other)}, but has {batches_words(other.in_flight)} of the workload's batches "
        "in flight: not picked without a target accuracy"
    ]


def _value(plan: Plan, one: Alternative) -> float:
    return float(plan.objective.values(np.array([one.time_s]), np.array([one.money]))[0])


def _distance(plan: Plan, one: Alternative) -> float:
    return float(plan.objective.distances(np.array([one.time_s]), np.array([one.money]))[0])


def _bound(pick: Alternative) -> str:
    if pick.candidate.pipeline > 1:
        return (
            f"a pipeline, because the network does not fit on one {pick.candidate.device}: {pick.step_s * 1e3:,.3g} ms "
            f"per step, of which a stage waits for others {percent(pick.waiting_share, 0)} on average"
        )
    if pick.candidate.is_divided:
        how = "layers are divided by feature" if pick.candidate.tensor > 1 else "parameters are sharded"
        return (
            f"{how}, because the network does not fit on one {pick.candidate.device}: {pick.step_s * 1e3:,.3g} ms per "
            f"step, of which a device only exchanges {percent(pick.communication_share, 0)}"
        )
    if pick.candidate.workers == 1:
        return f"compute bound: one worker, {pick.iteration_s * 1e3:,.3g} ms per iteration"
    return f"{pick.bound} bound: {_lost(pick)}" if pick.bound != "straggling" else _lost(pick)


def _shares(plan: Plan) -> list[str]:
    """What one device would need, and what each of several needs."""
    alone = f"one device would need {plan.prediction.memory_bytes / 1e9:.2f} GB"
    if plan.divided is not None:
        own = plan.divided
        needs = f"each of {own.processes} needs {own.memory_bytes / 1e9:.2f} GB"
        return [f"{alone}, {needs} and sends {own.sent_bytes / 1e6:,.0f} MB per step"]
    if plan.pipeline is None:
        return []
    needs = ", ".join(f"{size / 1e9:.2f}" for size in plan.pipeline.shares_bytes)
    begin = ", ".join(stage.layers[0] for stage in plan.pipeline.stages[1:])
    return [f"{alone}, the stages {needs} GB; cut at {begin}"]


def _lost(one: Alternative) -> str:
    """`35 % of each step waits for the server, 5 % exchanges, the rest computes`."""
    whom = "for slower workers" if one.candidate.waits_for_all or one.bound == "straggling" else "for the server"
    parts = {
        f"waits {whom}": one.waiting_share,
        "exchanges": one.communication_share,
        "computes": one.computing_share,
    }
    shown = [(what, share) for what, share in sorted(parts.items(), key=lambda part: -part[1]) if share >= 0.005]
    first, *others = [f"{percent(share, 0)} {what}" for what, share in shown]
    what, _, rest = first.partition(" % ")
    return ", ".join([f"{what} % of each step {rest}", *others])


def _comparisons(plan: Plan, found: list[tuple[BestOther, Alternative | None]]) -> list[str]:
    """Each alternative once, although it may be the best in several respects."""
    lines, mentioned = [], set()
    for one, other in found:
        if one.number is None or one.number not in mentioned:
            mentioned.add(one.number)
            lines.append(_compared(plan, one.what, other))
    return [line for line in lines if line]


def _compared(plan: Plan, what: str, other: Alternative | None) -> str:
    name = {
        "machine": f"the best without {plan.pick.candidate.machine}",
        "strategy": f"the best other strategy than {plan.pick.candidate.strategy.name}",
        "synchronous": "the best synchronous group",
        "more workers": "the best with more workers",
        "fewer workers": "the best with fewer workers",
        "precision": "the best in float32",
        "batch": f"the best with batch {plan.workload.batch:,}",
    }[what]
    if other is None:
        return f"{name}: none is within {_objective(plan)}" if plan.met else ""
    return f"{name}, {other}, {_difference(plan.pick, other)}{_why(other)}"


def _difference(pick: Alternative, other: Alternative) -> str:
    """`takes 12 % longer and costs 30 % less`."""
    time = _more(other.time_s, pick.time_s, "takes", "longer", "less time", "as long")
    cost = _more(other.money, pick.money, "costs", "more", "less", "as much")
    return " and ".join(filter(None, (time, cost))) or "takes and costs about the same"


def _more(value: float, than: float, verb: str, more: str, less: str, times: str) -> str:
    if not than or abs(value / than - 1) < NOTICEABLE:
        return ""
    if value > 1.95 * than:
        return f"{verb} {value / than:,.2g} times {times}"
    return f"{verb} {percent(abs(value / than - 1), 0)} {more if value > than else less}"


def _why(other: Alternative) -> str:
    lost = other.waiting_share + other.communication_share
    return f": {_lost(other)}" if other.candidate.workers > 1 and lost >= NOTABLE else ""


def _uncertainties(plan: Plan) -> list[str]:
    pick, objective = plan.pick, plan.objective
    lines = []
    if objective.deadline_s is not None and plan.met and pick.high_s > objective.deadline_s:
        lines.append(f"it may miss the deadline: the 90 % interval is {range_words(pick.low_s, pick.high_s)}")
    if objective.target_accuracy is None and pick.in_flight > 1:
        lines.append(
            f"accuracy was not considered: {batches_words(pick.in_flight)} of the workload's batches are in flight, "
            f"and {pick.epochs:g} epoch{'s' * (pick.epochs != 1)} may reach less than in one process "
            "(plan for a target accuracy to find out)"
        )
    if objective.target_accuracy is not None:
        lines.append(_learned_words(plan))
    if objective.spot:
        lines.append("spot machines can be interrupted: interruptions are not included")
    return lines


def _learned_words(plan: Plan) -> str:
    """Where the number of epochs comes from."""
    pick, sample = plan.pick, plan.conditions["learned from"]
    passes = next((one.passes for one in plan.learned if one.epochs == pick.epochs), 0)
    seen = f"{pick.accuracy:.4f} was reached after {passes} passes over {sample} in virtual time"
    whole = sample.startswith("all ")
    return (
        f"{seen}{'' if whole else f', as many samples as in {pick.epochs:.3g} epochs of all data'}; "
        "learning rate and precision were not varied"
    )
