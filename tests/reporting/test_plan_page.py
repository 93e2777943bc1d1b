"""A plan on a page: the pick and its reasons first, everything worth having as points and rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from paceline import record
from paceline.planning.machine_options import options_of
from paceline.planning.objective import Objective
from paceline.planning.plan import Plan
from paceline.planning.planning import make_plan
from paceline.reporting.answer import answer_of, title_of
from paceline.reporting.figure import Figure, TableBlock
from paceline.reporting.page import page_of, render, report
from paceline.reporting.paper_figures import write_figures
from paceline.reporting.sections.plans import PICK, plan_section, plan_sentence
from paceline.results.records import Records, find_records
from tests.a_run import a_run
from tests.planning.invented import WORKLOAD, invented_cluster, invented_predictions
from tests.reporting.examples import EVIL
from tests.reporting.test_in_browser import AXE


@pytest.fixture(scope="module")
def plan() -> Plan:
    cluster, predictions = invented_cluster(2), invented_predictions(2)
    return make_plan(
        WORKLOAD, options_of(cluster), Objective(epochs=3), predict=predictions, strategies=("sync", "downpour")
    )


@pytest.fixture(scope="module")
def page(plan, tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("plans")
    record.save(plan, place / "mine" / "plan.json")
    return report([place], place / "page.html").path


def test_the_answer_is_what_to_do(plan):
    records = Records(plans=[("mine", plan)])
    answer = answer_of(records, ())
    assert answer.sentence == plan_sentence(plan) and answer.sentence.endswith(", the best balance of time and cost.")
    assert answer.sentence.startswith("Train mlp on ") and plan.pick.candidate.machine in answer.sentence
    assert {what: value for value, what in answer.tiles}["workers"] == f"{plan.pick.candidate.workers:,}"
    assert title_of(records, ()) == "mlp on digits"


def test_a_wish_that_nothing_keeps_is_said_first(plan):
    sentence = plan_sentence(replace(plan, met=False, objective=Objective(epochs=3, deadline_s=1.0)))
    assert sentence.endswith("no configuration meets the deadline or budget.")


def test_reasons_rows_and_figures(plan):
    section = plan_section(plan, "")
    assert len(section.points) == len(plan.reasons) and all(point.endswith(".") for point in section.points)
    listing = next(b for b in section.blocks if isinstance(b, TableBlock))
    assert [row[1] for row in listing.table.rows].count(PICK) == 1
    assert len(listing.table.rows) == len({*plan.front, plan.pick})
    assert [b.id for b in section.blocks if isinstance(b, Figure)] == ["plan-front", "plan-shares"]


def test_several_plans_have_a_section_each(plan):
    page = page_of(Records(plans=[("a", plan), ("b", replace(plan, objective=Objective(epochs=3, budget=1.0)))]))
    assert [section.id for section in page.sections] == ["plan", "plan-2"]
    text = render(page)
    assert 'id="figure-plan-2-front"' in text


def test_a_plan_beside_the_run_that_came_of_it(plan):
    text = render(page_of(Records(plans=[("a", plan)], runs=[("b", a_run())])))
    assert ">Plan</h2>" in text and ">Accuracy and loss</h2>" in text


def test_a_directory_of_a_plan_is_read(plan, page):
    records = find_records([page.parent])
    assert [found.pick for _, found in records.plans] == [plan.pick]


def test_figures_for_a_paper(plan, tmp_path):
    made = write_figures(page_of(Records(plans=[("a", plan)])).figures, tmp_path)
    assert {path.name for path in made} >= {"plan-front.png", "plan-shares.svg"}


def test_names_that_look_like_markup_are_text(plan):
    candidate = replace(plan.pick.candidate, machine=EVIL)
    evil = replace(plan, cluster=EVIL, pick=replace(plan.pick, candidate=candidate), reasons=(EVIL,))
    text = render(page_of(Records(plans=[(EVIL, evil)])))
    assert "<img src=x" not in text and "&lt;img src=x" in text


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (390, False)])
def test_in_a_browser_every_point_is_drawn_and_nobody_is_shut_out(open_page, page, plan, width, dark):
    tab = open_page(page, width=width, dark=dark)
    tab.draw_everything()
    assert tab.complaints() == [] and tab.requests() == []
    shapes = tab.ask("document.querySelectorAll('#figure-plan-front .chart svg path').length")
    assert shapes >= len(plan.front)
    assert tab.ask("document.documentElement.scrollWidth <= innerWidth")
    tab.ask(AXE.read_text(encoding="utf-8") + "; 0")
    serious = "['serious', 'critical'].includes(v.impact)"
    assert tab.ask(f"axe.run().then(r => r.violations.filter(v => {serious}).map(v => v.id))") == []
