"""Why a plan is as it is, in plain words that follow from its numbers."""

from __future__ import annotations

import math

from paceline.plan.comparisons import Comparison
from paceline.plan.plan import Alternative, Plan

NOTABLE = 0.2
"""Of a worker's time: what is worth a word."""
UNLIKE = 0.01


def time_words(seconds: float) -> str:
    """`3.2 h`, `14 min`, `2.5 days`."""
    for most, unit, name in ((120, 1.0, "s"), (7200, 60.0, "min"), (172800, 3600.0, "h")):
        if seconds < most:
            return f"{seconds / unit:.3g} {name}"
    days = seconds / 86400
    return f"{days:,.3g} days" if days < 1000 else f"{days / 365:,.0f} years"


def money_words(money: float, currency: str) -> str:
    return f"{money:,.2f} {currency}" if money >= 0.01 or not money else f"{money:.2g} {currency}"


def reasons_for(
    plan: Plan, comparisons: list[tuple[Comparison, Alternative | None]], *, beyond_caution: bool
) -> list[str]:
    """What was picked by which rule, what holds it back, what it was picked over, and what is not known."""
    return [
        headline(plan),
        *_caution(plan, beyond_caution),
        _bound(plan.pick),
        *(line for one, other in comparisons if (line := _compared(plan, one.what, other))),
        *_doubts(plan),
    ]


def headline(plan: Plan) -> str:
    """By which rule the pick was made; or that nothing keeps the wish."""
    cost, time = money_words(plan.pick.money, plan.currency), time_words(plan.pick.time_s)
    deadline, budget = plan.wish.deadline_s is not None, plan.wish.budget is not None
    if not plan.met:
        kind = "nearest" if deadline and budget else "fastest" if deadline else "cheapest"
        return f"no plan is within {_wish(plan)}: the {kind} takes {time} and {cost}"
    if deadline:
        return f"the cheapest within {_wish(plan)}: {cost} in {time}"
    if budget:
        return f"the fastest within {_wish(plan)}: {time} for {cost}"
    return (
        f"the knee, the least time × money: {time} for {cost}; faster ones cost more than they are faster, "
        "cheaper ones take longer than they are cheaper"
    )


def _wish(plan: Plan) -> str:
    deadline, budget = plan.wish.deadline_s, plan.wish.budget
    words = [time_words(deadline)] if deadline is not None else []
    return " and ".join([*words, *([money_words(budget, plan.currency)] if budget is not None else [])])


def _caution(plan: Plan, beyond: bool) -> list[str]:
    if not beyond or not plan.met:
        return []
    return [
        f"{plan.pick.under_way:,.4g} of the workload's batches are under way at once: no plan nearer to it is within "
        f"{_wish(plan)}; whether it learns as well is not known (--target-accuracy finds out)"
    ]


def _bound(pick: Alternative) -> str:
    lost = pick.waiting_share + pick.communication_share
    if pick.candidate.workers == 1:
        return f"one worker waits for nobody: an iteration takes {pick.iteration_s * 1e3:,.3g} ms"
    if pick.bound == "compute" and lost < NOTABLE:
        return f"compute bound: {1 - lost:.0%} of each step is computing"
    if pick.bound == "straggling" or (pick.bound == "compute" and pick.waiting_share > pick.communication_share):
        what = "the slowest worker" if pick.candidate.waits_for_all else "others"
        return f"{pick.waiting_share:.0%} of each step waits for {what}, {pick.communication_share:.0%} communicates"
    if pick.bound == "server":
        return f"server bound: {lost:.0%} of each step waits for the server, which is busy {pick.server_share:.0%}"
    name = "network bound" if pick.bound == "network" else "partly network bound"
    what = "goes to exchanging" if pick.candidate.waits_for_all else "waits for the server"
    return f"{name}: {lost:.0%} of each step {what}"


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
        return f"{name} does not do: none is within {_wish(plan)}" if plan.met else ""
    return f"{name}, {other.candidate}, {_difference(plan.pick, other)}{_why(other)}"


def _difference(pick: Alternative, other: Alternative) -> str:
    """`takes 12 % longer and costs 30 % less`."""
    longer, dearer = other.time_s / pick.time_s - 1, other.money / pick.money - 1 if pick.money else math.nan
    time = f"takes {abs(longer):.0%} {'longer' if longer > 0 else 'less time'}" if abs(longer) >= UNLIKE else ""
    cost = f"costs {abs(dearer):.0%} {'more' if dearer > 0 else 'less'}" if abs(dearer) >= UNLIKE else ""
    if time and cost:
        return f"{time} and {cost}"
    return f"{time or cost}" or "takes and costs about the same"


def _why(other: Alternative) -> str:
    lost = other.waiting_share + other.communication_share
    if other.candidate.workers == 1 or lost < NOTABLE:
        return ""
    whom = {"server": "waits for the server", "straggling": "waits for slower workers"}.get(
        other.bound, "exchanges or waits for it"
    )
    return f": {lost:.0%} of each step {whom}"


def _doubts(plan: Plan) -> list[str]:
    pick, wish = plan.pick, plan.wish
    lines = []
    if wish.deadline_s is not None and plan.met and pick.high_s > wish.deadline_s:
        lines.append(
            f"it may end too late: in nine cases of ten it takes {time_words(pick.low_s)} to {time_words(pick.high_s)}"
        )
    if wish.target_accuracy is None and pick.under_way > 1:
        lines.append(
            f"accuracy was not looked at: {pick.under_way:,.4g} of the workload's batches are under way at once, and "
            f"{pick.epochs:g} epochs may learn less than in one process (--target-accuracy finds out)"
        )
    if wish.target_accuracy is not None:
        lines.append(
            f"{wish.target_accuracy:.4g} was reached after {pick.epochs:.3g} epochs of all data, as many samples as "
            f"{plan.conditions.get('learnt from', 'a sample')} took; learning rate and precision were not varied"
        )
    if wish.spot:
        lines.append("machines at spot prices can be taken away: no interruption is counted")
    return lines
