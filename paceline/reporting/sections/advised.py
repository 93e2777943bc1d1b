"""Advice for a task: what was chosen, why, and which candidates were tried."""

from __future__ import annotations

from paceline.advice.advice import Advice, error_words
from paceline.formatting import count, duration
from paceline.held_objects import shown_name
from paceline.reporting.figure import Column, Section, listing, section


def advice_sentence(advice: Advice) -> str:
    """The network to train, with its error or predicted time."""
    network = shown_name(advice.workload.network)
    said = f"To {_task_words(advice)}, train {network} ({advice.family})"
    if (tried := advice.chosen) is not None:
        error = error_words(tried.error, advice.error_name)
        reached = f"its test {advice.error_name} was {error} after {duration(tried.wall_s)}"
        return f"{said}: {reached}{'' if advice.met else ', above the acceptable one'}."
    if advice.predicted_s == advice.predicted_s:
        return f"{said}, which is predicted to take {duration(advice.predicted_s)}."
    return f"{said}."


def _task_words(advice: Advice) -> str:
    words = {"generate-to-spec": "generate samples of a given kind", "sequence": "learn a sequence"}
    return words.get(advice.task.task, advice.task.task)


def advice_section(advice: Advice, suffix: str) -> Section | None:
    points = [
        f"{each.topic.capitalize()}: {each.value}. {each.reason[0].upper()}{each.reason[1:]}."
        for each in advice.choices
    ]
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
    return section(f"advice{suffix}", "Advice", (advice_sentence(advice),), points, (tried,))
