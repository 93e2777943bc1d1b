"""A plan: what was picked and why, what else is worth having, and where the time of each goes."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.formatting import count, number
from paceline.planning.machine_options import CATALOGUE, MACHINE_HOURS
from paceline.planning.plan import Alternative, Plan
from paceline.planning.reasons import headline, time_words
from paceline.reporting.figure import Cell, Column, Figure, Section, Table, TableBlock, View, table

LEVELS = ((1.0, "as the workload is"), (4.0, "up to 4 batches in flight"), (16.0, "up to 16 batches in flight"))
FARTHER = "more batches in flight"
PICK = "the pick"
UNITS = ((120, 1.0, "s"), (7200, 60.0, "min"), (172800, 3600.0, "h"), (float("inf"), 86400.0, "days"))
IN_FLIGHT = (
    "Batches in flight: how many of the workload's batches are computed on the same or stale parameters. With 1, "
    "training converges as in one process; with more, it may converge worse."
)


def plans(found: Sequence[tuple[str, Plan]]) -> list[Section]:
    return [_section(plan, "" if place == 0 else f"-{place + 1}") for place, (_, plan) in enumerate(found)]


def plan_sentence(plan: Plan) -> str:
    """What to rent and do, by which rule, in one sentence."""
    if plan.objective.deadline_s is None and plan.objective.budget is None:
        said = f"the least time × money is {time_words(plan.pick.time_s)} for {number(plan.pick.money)} {plan.currency}"
    else:
        said = headline(plan)
    return f"{said[0].upper()}{said[1:]}, with {plan.pick}."


def _section(plan: Plan, suffix: str) -> Section:
    shown = plan.front if plan.pick in plan.front else (*plan.front, plan.pick)
    shown = tuple(sorted(shown, key=lambda one: (one.time_s, one.money)))
    where = "machines of the catalogue" if plan.cluster == CATALOGUE else plan.cluster
    said = (
        f"{plan.workload.network} on {plan.workload.data}, {_objective_words(plan)}: {len(shown):,} of the "
        f"{plan.candidates:,} ways to train it on {where} {'is' if len(shown) == 1 else 'are'} worth having; "
        f"{plan.conditions.get('simulated', '')} were simulated to know that."
    )
    blocks: list[Figure | TableBlock] = [
        TableBlock(f"plan{suffix}-rows", "What is worth having, the fastest first", _table(plan, shown), _note(plan)),
        *_figures(plan, shown, suffix),
    ]
    left = table(("left out", Column("candidates")), list(plan.excluded.items()))
    if plan.excluded:
        blocks.append(TableBlock(f"plan{suffix}-left-out", "What was left out", left, folded=True))
    points = tuple(f"{reason[0].upper()}{reason[1:]}." for reason in plan.reasons)
    return Section(f"plan{suffix}", "What is planned", (said, f"Picked: {plan.pick}. Why:"), points, tuple(blocks))


def _objective_words(plan: Plan) -> str:
    objective, words = plan.objective, []
    if objective.target_accuracy is not None:
        words.append(f"to a test accuracy of {objective.target_accuracy:.4g}")
    elif objective.epochs is not None:
        words.append(f"{objective.epochs:g} epoch{'s' * (objective.epochs != 1)}")
    if objective.deadline_s is not None:
        words.append(f"within {time_words(objective.deadline_s)}")
    if objective.budget is not None:
        words.append(f"for at most {number(objective.budget)} {plan.currency}")
    return ", ".join(words)


def _note(plan: Plan) -> str:
    dates, basis = plan.conditions.get("prices of", "not known"), plan.prediction.basis
    prices = "" if plan.currency == MACHINE_HOURS else f" Prices of {dates}."
    interval = (
        "Plans are named by machines, strategy × workers, and batch size per worker. Least and greatest time are the "
        "ends of the 90 % interval."
    )
    return f"{interval} Predictions of the pick: {basis}.{prices} {IN_FLIGHT}"


def _figures(plan: Plan, shown: Sequence[Alternative], suffix: str) -> list[Figure]:
    best, groups = plan.pick, [PICK, *(name for _, name in LEVELS), FARTHER]
    nearest_first = _table(plan, sorted(shown, key=lambda one: groups.index(_nearness(one, plan))))
    front = Figure(
        f"plan{suffix}-front", "Time and money", "lines",
        (View("", nearest_first, {
            "line": "plan", "group": "nearness", "x": plan.currency, "y": "time", "points": True,
            "styles": {name: [hue, 0] for name, hue in zip(groups, (1, 0, 2, 4, 7), strict=True)},
        }),),
        f"The pick takes {time_words(best.time_s)} and {number(best.money)} {plan.currency}; "
        f"{count(len(shown) - 1, 'other')} beside it.",
        "Each point is a plan that no other beats in time, money and batches in flight.",
    )  # fmt: skip
    parts = ["computing", "communicating", "waiting"]
    shares = Figure(
        f"plan{suffix}-shares", "Where a step's time goes", "stack",
        (View("", _table(plan, shown), {"category": "plan", "parts": parts, "most": 40}),),
        f"Of a step of the pick {number(100 * _computing(best))} % is computing.",
    )  # fmt: skip
    return [front, shares]


def _table(plan: Plan, shown: Sequence[Alternative]) -> Table:
    unit_s, unit = next((factor, name) for most, factor, name in UNITS if max(o.time_s for o in shown) < most)
    columns = (
        "plan", "nearness", Column("time", unit), Column("least", unit), Column("greatest", unit),
        Column(plan.currency), "machines", "workers", "strategy", "batch", "precision", "batches in flight",
        Column("computing", "%"), Column("communicating", "%"), Column("waiting", "%"), "bound by",
    )  # fmt: skip
    names = _names(shown)
    rows: list[tuple[Cell, ...]] = [
        (
            names[one], _nearness(one, plan), *(s / unit_s for s in (one.time_s, one.low_s, one.high_s)), one.money,
            one.machines, one.candidate.workers, _strategy(one), one.candidate.batch, one.candidate.precision,
            one.in_flight, 100 * _computing(one), 100 * one.communication_share, 100 * one.waiting_share, one.bound,
        )
        for one in shown
    ]  # fmt: skip
    return table(columns, rows)


def _names(shown: Sequence[Alternative]) -> dict[Alternative, str]:
    """As short as tells them apart."""
    for precise in (False, True):
        names = {one: _name(one, precise) for one in shown}
        if len(set(names.values())) == len(shown):
            break
    return names


def _name(one: Alternative, precise: bool) -> str:
    machine = one.candidate.machine if one.machines == 1 else f"{one.machines} × {one.candidate.machine}"
    words = [machine, f"{_strategy(one)} × {one.candidate.workers}" if one.candidate.workers > 1 else "one worker"]
    return ", ".join([*words, f"batch {one.candidate.batch:,}", *([one.candidate.precision] if precise else [])])


def _strategy(one: Alternative) -> str | None:
    return one.candidate.strategy.name if one.candidate.workers > 1 else None


def _computing(one: Alternative) -> float:
    return max(0.0, 1 - one.waiting_share - one.communication_share)


def _nearness(one: Alternative, plan: Plan) -> str:
    if one == plan.pick:
        return PICK
    return next((name for most, name in LEVELS if one.in_flight <= most), FARTHER)
