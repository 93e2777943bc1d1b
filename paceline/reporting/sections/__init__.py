"""The sections of a page, in order; empty ones are left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from paceline.formatting import count
from paceline.reporting.figure import Section, listing, section
from paceline.reporting.sections.advised import advice_section
from paceline.reporting.sections.batch_model import batch_model
from paceline.reporting.sections.by_setting import by_setting
from paceline.reporting.sections.clusters import cluster_section
from paceline.reporting.sections.comparisons import costs, predictions, published
from paceline.reporting.sections.feeding import feeding
from paceline.reporting.sections.layers import where_the_time_goes
from paceline.reporting.sections.learned import what_was_learned
from paceline.reporting.sections.learning import learning
from paceline.reporting.sections.overhead import overhead
from paceline.reporting.sections.plans import plan_section
from paceline.reporting.sections.scaling import scaling
from paceline.reporting.sections.setting import conditions, run_table, what_was_run
from paceline.reporting.sections.timeline import timeline
from paceline.reporting.sections.workers import workers
from paceline.results.comparison_rows import ExtraTable
from paceline.results.records import Records
from paceline.results.run_result import RunResult, measurement_names


def sections_of(records: Records, runs: tuple[RunResult, ...]) -> list[Section]:
    measured = measurement_names(records)
    made = (
        section("about", "About this experiment", points=records.notes),
        *numbered(advice_section, records.advice),
        *numbered(plan_section, records.plans),
        *numbered(cluster_section, records.clusters),
        predictions(records.all_predictions),
        published(records.published),
        by_setting(runs, measured),
        batch_model(runs),
        feeding([made for _, made in records.feedings]),
        overhead(measured, runs),
        where_the_time_goes(measured, runs),
        learning(runs),
        what_was_learned(records, runs),
        scaling(runs, records.published),
        workers(runs),
        timeline(runs, measured),
        costs(records.costs, runs, records.price),
        extra_tables(records.tables),
        what_was_run(records, runs),
        run_table(runs),
        conditions(records, runs),
        skipped(records),
    )
    return [each for each in made if each is not None]


def numbered(make: Callable[[Any, str], Section | None], found: Sequence[tuple[str, Any]]) -> list[Section | None]:
    """A section per record; the ids of the second and later ones end in their number."""
    return [make(record, f"-{place}" if place > 1 else "") for place, (_, record) in enumerate(found, 1)]


def skipped(records: Records) -> Section | None:
    many = count(len(records.skipped), "file")
    said = f"{many} could not be read and {'is' if len(records.skipped) == 1 else 'are'} not included."
    rows = [(s.place, s.reason) for s in records.skipped]
    block = listing("skipped-table", "Skipped", ("file", "reason"), rows)
    return section("skipped", "Skipped files", (said,), blocks=(block,))


def extra_tables(tables: Sequence[ExtraTable]) -> Section | None:
    """Tables from files; cells keep their digits."""
    blocks = [
        listing(f"extra-{place}", given.title, given.header, [[text or None for text in row] for row in given.rows])
        for place, given in enumerate(tables)
    ]
    return section("tables", "Further tables", blocks=blocks)
