"""Advice for a task: what was chosen, why, and which candidates were tried."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.advice.advice import Advice
from paceline.formatting import count, duration, number
from paceline.held_objects import shown_name
from paceline.reporting.figure import Column, Section, listing, section


def advised(found: Sequence[tuple[str, Advice]]) -> list[Section | None]:
    return [_section(advice, "" if place == 0 else f"-{place + 1}") for place, (_, advice) in enumerate(found)]


def advice_sentence(advice: Advice) -> str:
    """The network to train, and what is known of it."""
    network = shown_name(advice.workload.network)
    said = f"To {_task_words(advice)}, train {network} ({advice.family})"
    if (tried := advice.chosen) is not None:
        reached = f"its test {advice.error_name} was {number(tried.error)} after {duration(tried.wall_s)}"
        return f"{said}: {reached}{'' if advice.met else ', above the acceptable one'}."
    if advice.predicted_s == advice.predicted_s:
        return f"{said}, which takes {duration(advice.predicted_s)} as predicted."
    return f"{said}."


def _task_words(advice: Advice) -> str:
    words = {"generate-to-spec": "generate samples of a given kind", "sequence": "learn a sequence"}
    return words.get(advice.task.task, advice.task.task)


def _section(advice: Advice, suffix: str) -> Section | None:
    choices = listing(
        f"advice{suffix}-choices", "Choices and their reasons", ("topic", "choice", "predicted", "reason"),
        [(row["topic"], row["choice"], row["predicted"], row["reason"]) for row in advice.table()],
    )  # fmt: skip
    rows = [
        (
            "chosen" if row["chosen"] else "", row["network"], row["options"], row[advice.error_name], row["wall_s"],
            row["predicted_s"], row["status"],
        )
        for row in advice.trial_table()
    ]  # fmt: skip
    columns = (
        "", "network", "options", f"test {advice.error_name}", Column("time", "s"), Column("predicted", "s"), "status",
    )  # fmt: skip
    tried = listing(f"advice{suffix}-tried", f"{count(len(rows), 'candidate')} tried, cheapest first", columns, rows)
    return section(f"advice{suffix}", "Advice", (advice_sentence(advice),), blocks=(choices, tried))
