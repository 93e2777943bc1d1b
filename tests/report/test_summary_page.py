"""The page answers first, then shows charts and tables; it is self-contained and trusts no text."""

from __future__ import annotations

import math
import os
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from paceline.report.page import answer, summary_page, time_parts, write_summary
from paceline.strategy.distribution import Distribution, Fault, WorkerRecord
from paceline.strategy.ledger import LedgerSummary
from paceline.strategy.strategy import preset
from paceline.trace import Span, Trace
from paceline.train.run import Epoch
from paceline.workload import Workload
from tests.a_run import a_run


class Page(HTMLParser):
    """What a browser would see: elements with their attributes, rows of tables, and all text."""

    VOID = ("meta", "link", "img", "br", "hr", "input")

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.rows: list[list[str]] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in self.VOID and tag not in ("polyline", "circle", "line"):
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, f"</{tag}> closes something else"

    def handle_data(self, data):
        self.text += data
        if "td" in self.open or "th" in self.open:
            self.rows[-1][-1] += data

    def tags(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.elements if tag == name]


def test_the_answer_is_one_sentence_with_what_matters():
    assert answer(a_run()) == (
        "After 2 epochs and 4.5 seconds on A Processor, lenet5 classifies 81.25 % of the test samples "
        "correctly; it trained on 1,705 samples a second."
    )


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"wall_s": 600.0}, "After 2 epochs and 10.0 minutes on"),
        ({"test_accuracy": math.nan}, "lenet5 reached a test loss of 0.6250; it"),
        ({"samples_per_s": math.nan}, "of the test samples correctly."),
        ({"status": "diverged"}, "lenet5 on digits diverged after 46 updates, 4.5 seconds."),
        ({"status": "interrupted"}, "lenet5 on digits was interrupted after 46 updates, 4.5 seconds."),
    ],
)
def test_the_answer_of_other_runs(changes, expected):
    assert expected in answer(a_run(**changes))


def test_one_epoch_is_not_epochs():
    assert answer(a_run(epochs=a_run().epochs[:1])).startswith("After 1 epoch and ")


def test_the_page_has_the_answer_charts_and_tables():
    page = Page(summary_page(a_run()))
    assert page.open == [], "every element is closed"
    assert answer(a_run()) in page.text
    assert [svg["aria-label"] for svg in page.tags("svg")] == ["Accuracy, %, by epoch", "Loss by epoch"]
    assert len(page.tags("polyline")) == 4
    assert [
        "1",
        "2.2500",
        "12.50 %",
        "50.00 %",
        "2.1250",
        "25.00 %",
        "62.50 %",
        "1,500",
        "2.500",
    ] in page.rows
    assert [
        "2",
        "0.7500",
        "75.00 %",
        "87.50 %",
        "0.6250",
        "81.25 %",
        "100.00 %",
        "1,900",
        "1.500",
    ] in page.rows
    assert ["step", "flat: 46 updates are too few for compiling to pay"] in page.rows
    assert ["operations a step on cpu:0", "48"] in page.rows
    assert ["device name", "A Processor"] in page.rows and ["threads", "2"] in page.rows
    assert ["options", "{'width': [6, 16]}"] in page.rows and ["lr", "0.1"] in page.rows


def test_the_page_needs_nothing_from_elsewhere():
    text = summary_page(a_run())
    assert not re.search(r"https?:|//[a-z]|url\(|@import", text)
    page = Page(text)
    assert not any(page.tags(tag) for tag in ("script", "link", "img", "iframe", "object"))
    assert not any(key in ("src", "href", "srcset") for _, given in page.elements for key in given)


def test_the_page_suits_phones_screen_readers_and_the_dark():
    text = summary_page(a_run())
    page = Page(text)
    assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in page.tags("meta")
    assert page.tags("html") == [{"lang": "en"}] and len(page.tags("h1")) == 1
    assert "prefers-color-scheme: dark" in text and "@media print" in text


EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&"


def test_text_from_outside_is_text():
    run = a_run(
        workload=Workload(network=EVIL, data=EVIL, options={EVIL: EVIL}, init=EVIL),
        data=EVIL,
        placement={EVIL: 3},
        conditions=replace(a_run().conditions, device_name=EVIL),
        step=replace(a_run().step, reason=EVIL),
        status=EVIL,
        trace=Trace((Span("main", EVIL, 0, 1),)),
    )
    page = Page(summary_page(run))
    assert page.tags("script") == [] and page.tags("img") == []
    assert not any(key.startswith("on") for _, given in page.elements for key in given)
    assert ["data", EVIL] in page.rows
    assert page.text.count("alert(1)") >= 8


def test_figures_that_are_not_known_are_dashes():
    unknown = Epoch(1, 2.5, math.nan, math.nan, math.nan, math.nan, math.nan, 1.0, math.nan)
    run = a_run(
        epochs=(unknown,),
        samples_per_s=math.nan,
        test_accuracy=math.nan,
        test_top_accuracy=math.nan,
    )
    text = summary_page(run)
    page = Page(text)
    assert not re.search(r"\bnan\b", page.text, re.IGNORECASE)
    assert ["1", "2.5000", "–", "–", "–", "–", "–", "–", "1.000"] in page.rows
    assert [svg["aria-label"] for svg in page.tags("svg")] == ["Loss by epoch"], "no accuracy, no chart of it"


def test_a_run_that_has_not_begun_has_a_page_too():
    page = Page(summary_page(a_run(status="running", epochs=(), trace=Trace(), updates=0)))
    assert page.tags("svg") == [] and "was still running after 0 updates" in page.text


def test_times_add_up_to_the_wall_clock_and_the_rest_is_shown():
    parts = {what: seconds for what, seconds, _ in time_parts(a_run())}
    assert parts == {
        "preparing the step": 0.5,
        "writing checkpoints": 0.5,
        "training": 1.75,  # two seconds, less the checkpoint written meanwhile
        "validating": 1.0,
        "not attributed": 0.25,
    }
    assert sum(share for _, _, share in time_parts(a_run())) == pytest.approx(1)
    assert time_parts(a_run(trace=Trace())) == []


def test_the_bar_and_its_table_use_the_same_colours():
    page = Page(summary_page(a_run()))
    marks = [given["class"].split()[-1] for given in page.tags("i")]
    assert marks[:5] == marks[5:] == ["preparing", "writing", "training", "validating", "not"]
    style = summary_page(a_run())
    assert all(f".{mark} {{ background:" in style for mark in marks)


def test_a_resumed_run_says_which_time_is_shown():
    assert "resumed" not in Page(summary_page(a_run())).text
    text = Page(summary_page(a_run(resumed=2))).text
    assert "Since the run was last resumed." in text and "finished, resumed 2 times" in text


def test_a_file_name_that_is_not_text_does_not_cost_the_page(tmp_path):
    folder = os.fsdecode(b"images:photos\xff")
    text = write_summary(a_run(workload=Workload(data=folder)), tmp_path).read_text(encoding="utf-8")
    assert "images:photos\\udcff" in text


def test_the_page_is_written_beside_the_record(tmp_path):
    path = write_summary(a_run(), tmp_path)
    assert path == tmp_path / "summary.html"
    assert path.read_text(encoding="utf-8") == summary_page(a_run())


def test_a_distributed_run_tells_of_its_workers_and_faults():
    ledger = LedgerSummary(updates=90, applied=100, returned=3, staleness={"0": 30, "1": 60})
    workers = (WorkerRecord(0, batches=60, lives=2), WorkerRecord(1, batches=40))
    faults = (Fault(1.25, "died", 0, note="was ended by SIGKILL"),)
    distribution = Distribution(
        preset("downpour"), 2, "local", seconds=2.0, updates=90, ledger=ledger, by_worker=workers, faults=faults,
        fault_count=1,
    )  # fmt: skip
    text = summary_page(replace(a_run(), distribution=distribution))
    expected = (
        "How it was distributed", "downpour, 2 workers and a server", "45.0000", "0.6667 in the mean", "100 applied",
        "3 given out again", "was ended by SIGKILL", "How stale the payloads were",
    )  # fmt: skip
    for words in expected:
        assert words in text, words
    assert "How it was distributed" not in summary_page(a_run())
