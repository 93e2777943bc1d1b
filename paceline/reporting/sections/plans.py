"""A plan: the recommendation and its reasons, the alternatives, and where the time of each goes."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.formatting import count, number
from paceline.held_objects import shown_name
from paceline.planning.machine_options import CATALOGUE, MACHINE_HOURS
from paceline.planning.plan import Alternative, Plan
from paceline.planning.reasons import money_words, time_words
from paceline.reporting.figure import Cell, Column, Figure, Section, Table, TableBlock, View, listing, section, table
from paceline.strategy.distribution import ACTIVITIES

IN_FLIGHT = ((1.0, "one batch in flight"), (4.0, "up to 4 batches in flight"), (16.0, "up to 16 batches in flight"))
MORE_IN_FLIGHT = "more batches in flight"
PICK = "recommended"
UNITS = ((1, 1e-3, "ms"), (120, 1.0, "s"), (7200, 60.0, "min"), (172800, 3600.0, "h"), (float("inf"), 86400.0, "days"))
IN_FLIGHT_NOTE = (
    "Batches in flight: how many of the workload's batches are computed at the same time from parameters that lack "
    "each other's updates. With 1, training converges as in one process; with more, convergence is less certain."
)


def plan_sentence(plan: Plan) -> str:
    """What to rent: predicted time and cost, and whether that meets the deadline and the budget."""
    pick = plan.pick
    machines = f"{pick.machines} × {pick.candidate.machine}" if pick.machines > 1 else pick.candidate.machine
    said = (
        f"Train {shown_name(plan.workload.network)} on {machines}: {time_words(pick.time_s)} and "
        f"{money_words(pick.money, plan.currency)} predicted"
    )
    if not plan.met:
        return f"{said}; no configuration meets the deadline or budget."
    if plan.objective.deadline_s is not None:
        return f"{said}, the cheapest within {time_words(plan.objective.deadline_s)}."
    if plan.objective.budget is not None:
        return f"{said}, the fastest within {money_words(plan.objective.budget, plan.currency)}."
    return f"{said}, the best balance of time and cost."


def plan_section(plan: Plan, suffix: str) -> Section | None:
    shown = plan.shown
    where = "machines of the catalogue" if plan.cluster == CATALOGUE else plan.cluster
    said = (
        f"{shown_name(plan.workload.network)} on {shown_name(plan.workload.data)}, {_objective_words(plan)}. "
        f"Of {plan.candidates:,} configurations on {where}, {len(shown):,} are not beaten in time, cost and batches in "
        "flight together; "
        f"{plan.conditions.get('simulated', '')} were simulated, the others were ruled out by bounds."
    )
    left, columns = "Configurations not considered", ("left out", "candidates")
    blocks = (
        *_figures(plan, shown, suffix),
        TableBlock(f"plan{suffix}-rows", "Best configurations, fastest first", _table(plan, shown), _note(plan)),
        listing(f"plan{suffix}-left-out", left, columns, plan.excluded.items(), folded=True),
    )
    points = (f"{reason[0].upper()}{reason[1:]}." for reason in plan.reasons)
    return section(f"plan{suffix}", "Plan", (said, f"Recommended: {plan.pick}. Reasons:"), points, blocks)


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
    interval = "Low and high are the ends of the 90 % interval of the predicted computing time."
    return f"{interval} Basis of the prediction: {basis}.{prices} {IN_FLIGHT_NOTE}"


def _figures(plan: Plan, shown: Sequence[Alternative], suffix: str) -> list[Figure]:
    best, groups = plan.pick, [PICK, *(name for _, name in IN_FLIGHT), MORE_IN_FLIGHT]
    nearest_first = _table(plan, sorted(shown, key=lambda one: groups.index(_nearness(one, plan))))
    front = Figure(
        f"plan{suffix}-front", "Predicted time and cost", "lines",
        (View("", nearest_first, {
            "line": "plan", "group": "group", "x": plan.currency, "y": "time", "points": True,
            "styles": {name: [hue, 0] for name, hue in zip(groups, (1, 0, 2, 4, 7), strict=True)},
        }),),
        f"The recommended configuration takes {time_words(best.time_s)} and {money_words(best.money, plan.currency)}; "
        f"{count(len(shown) - 1, 'alternative')} shown.",
        "Each point is a configuration that no other beats in time, cost and batches in flight together. "
        "The more batches are in flight (computed at the same time), the less certain is convergence.",
    )  # fmt: skip
    parts = list(ACTIVITIES)
    shares = Figure(
        f"plan{suffix}-shares", "Predicted time of a step", "stack",
        (View("", _table(plan, shown), {"category": "plan", "parts": parts, "most": 40, "whole": 100}),),
    )  # fmt: skip
    return [front, shares]


def _table(plan: Plan, shown: Sequence[Alternative]) -> Table:
    unit_s, unit = next((factor, name) for most, factor, name in UNITS if max(o.time_s for o in shown) < most)
    columns = (
        "plan", "group", Column("time", unit), Column("low", unit), Column("high", unit),
        Column(plan.currency), "machines", "workers", "strategy", "batch", "precision", "batches in flight",
        Column("computing", "%"), Column("communicating", "%"), Column("waiting", "%"), "limited by",
    )  # fmt: skip
    rows: list[tuple[Cell, ...]] = [
        (
            str(one), _nearness(one, plan), *(s / unit_s for s in (one.time_s, one.low_s, one.high_s)), one.money,
            one.machines, one.candidate.workers, one.method, one.candidate.batch, one.candidate.precision,
            one.in_flight, 100 * one.computing_share, 100 * one.communication_share, 100 * one.waiting_share, one.bound,
        )
        for one in shown
    ]  # fmt: skip
    return table(columns, rows)


def _nearness(one: Alternative, plan: Plan) -> str:
    if one == plan.pick:
        return PICK
    return next((name for most, name in IN_FLIGHT if one.in_flight <= most), MORE_IN_FLIGHT)
