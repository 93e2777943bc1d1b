"""Why a plan is as it is, in plain words that follow from its numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from paceline.planning.plan import Alternative, Plan

if TYPE_CHECKING:
    from paceline.planning.comparisons import Comparison

NOTABLE = 0.2
"""Of a worker's time: what is worth a word."""
UNLIKE = 0.01


def time_words(seconds: float) -> str:
    """`3.2 h`, `14 min`, `2.5 days`."""
    if 0 < seconds < 1:
        return f"{1e3 * seconds:.3g} ms"
    for most, unit, name in ((120, 1.0, "s"), (7200, 60.0, "min"), (172800, 3600.0, "h")):
        if seconds < most:
            return f"{seconds / unit:.3g} {name}"
    days = seconds / 86400
    return f"{days:,.3g} days" if days < 1000 else f"{days / 365:,.0f} years"


def money_words(money: float, currency: str) -> str:
    return f"{amount_words(money)} {currency}"


def amount_words(money: float) -> str:
    return f"{money:,.2f}" if money >= 0.01 or not money else f"{money:.2g}"


def batches_words(batches: float) -> str:
    """`0.5`, `16`, `19,968`."""
    return f"{batches:,.0f}" if batches >= 100 else f"{batches:.3g}"


def reasons_for(
    plan: Plan,
    comparisons: list[tuple[Comparison, Alternative | None]],
    *,
    beyond_caution: bool,
    memory_known: bool = True,
) -> list[str]:
    """What was picked by which rule, what holds it back, what it was picked over, and what is not known."""
    return [
        headline(plan),
        *_caution(plan, beyond_caution),
        _bound(plan.pick),
        *_comparisons(plan, comparisons),
        *_doubts(plan),
        *([] if memory_known else [f"whether it fits is not known: {plan.pick.candidate.device} has no memory = …"]),
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
    """That the pick is far from the workload, or that something farther was passed over."""
    under_way = f"{batches_words(plan.pick.under_way)} of the workload's batches are under way at once"
    if beyond and plan.met:
        return [
            f"{under_way}: no plan nearer to it is within {_wish(plan)}; whether it learns as well is not known "
            "(--target-accuracy finds out)"
        ]
    if beyond:
        near = [one for one in plan.simulated if one.candidate.is_near(plan.workload.batch)]
        other = min(near, key=lambda one: _distance(plan, one), default=None)
        instead = "" if other is None else f"; of those nearer to it the best, {other}, {_difference(plan.pick, other)}"
        return [f"{under_way}, and whether it learns as well is not known (--target-accuracy finds out){instead}"]
    other = min(plan.simulated, key=lambda one: _value(plan, one))
    if not plan.met or _value(plan, other) * (1 + UNLIKE) >= _value(plan, plan.pick):
        return []
    return [
        f"{other}, {_difference(plan.pick, other)}, but has {batches_words(other.under_way)} of the workload's batches "
        "under way at once: not picked without --target-accuracy"
    ]


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _value(plan: Plan, one: Alternative) -> float:
    return float(plan.wish.values(np.array([one.time_s]), np.array([one.money]))[0])


def _distance(plan: Plan, one: Alternative) -> float:
    return float(plan.wish.distances(np.array([one.time_s]), np.array([one.money]))[0])


def _bound(pick: Alternative) -> str:
    if pick.candidate.workers == 1:
        return f"one worker waits for nobody: an iteration takes {pick.iteration_s * 1e3:,.3g} ms"
    return f"{pick.bound} bound: {_lost(pick)}" if pick.bound != "straggling" else _lost(pick)


def _lost(one: Alternative) -> str:
    """`35 % of each step waits for the server, 5 % exchanges, the rest computes`."""
    whom = "for slower workers" if one.candidate.waits_for_all or one.bound == "straggling" else "for the server"
    parts = {
        f"waits {whom}": one.waiting_share,
        "exchanges": one.communication_share,
        "computes": max(0.0, 1 - one.waiting_share - one.communication_share),
    }
    shown = [(what, share) for what, share in sorted(parts.items(), key=lambda part: -part[1]) if share >= 0.005]
    first, *others = [f"{percent(share)} {what}" for what, share in shown]
    what, _, rest = first.partition(" % ")
    return ", ".join([f"{what} % of each step {rest}", *others])


def _comparisons(plan: Plan, found: list[tuple[Comparison, Alternative | None]]) -> list[str]:
    """Each alternative once, though it may be the best in several ways."""
    lines, told = [], set()
    for one, other in found:
        if one.number is None or one.number not in told:
            told.add(one.number)
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
        return f"{name} does not do: none is within {_wish(plan)}" if plan.met else ""
    return f"{name}, {other}, {_difference(plan.pick, other)}{_why(other)}"


def _difference(pick: Alternative, other: Alternative) -> str:
    """`takes 12 % longer and costs 30 % less`."""
    time = _more(other.time_s, pick.time_s, "takes", "longer", "less time", "as long")
    cost = _more(other.money, pick.money, "costs", "more", "less", "as much")
    return " and ".join(filter(None, (time, cost))) or "takes and costs about the same"


def _more(value: float, than: float, verb: str, more: str, less: str, times: str) -> str:
    if not than or abs(value / than - 1) < UNLIKE:
        return ""
    if value > 1.95 * than:
        return f"{verb} {value / than:,.2g} times {times}"
    return f"{verb} {percent(abs(value / than - 1))} {more if value > than else less}"


def _why(other: Alternative) -> str:
    lost = other.waiting_share + other.communication_share
    return f": {_lost(other)}" if other.candidate.workers > 1 and lost >= NOTABLE else ""


def _doubts(plan: Plan) -> list[str]:
    pick, wish = plan.pick, plan.wish
    lines = []
    if wish.deadline_s is not None and plan.met and pick.high_s > wish.deadline_s:
        lines.append(
            f"it may end too late: in nine cases of ten it takes {time_words(pick.low_s)} to {time_words(pick.high_s)}"
        )
    if wish.target_accuracy is None and pick.under_way > 1:
        lines.append(
            f"accuracy was not looked at: {batches_words(pick.under_way)} of the workload's batches are under way at "
            f"once, and {pick.epochs:g} epochs may learn less than in one process (--target-accuracy finds out)"
        )
    if wish.target_accuracy is not None:
        lines.append(_learnt(plan))
    if wish.spot:
        lines.append("machines at spot prices can be taken away: no interruption is counted")
    return lines


def _learnt(plan: Plan) -> str:
    """What the number of epochs is from."""
    pick, sample = plan.pick, plan.conditions["learnt from"]
    passes = next((one.passes for one in plan.learned if one.epochs == pick.epochs), 0)
    seen = f"{pick.accuracy:.4f} was seen after {passes} passes over {sample} in virtual time"
    whole = sample.startswith("all ")
    return (
        f"{seen}{'' if whole else f', as many samples as {pick.epochs:.3g} epochs of all have'}; "
        "learning rate and precision were not varied"
    )
