"""One HTML file that needs nothing else and trusts no text: what is written, before any browser looks at it."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import os
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from paceline import record
from paceline.errors import InputError
from paceline.measurement.measurement import Measurement, Spread
from paceline.reporting.page import page_of, render, report, write_summary
from paceline.results.comparison_rows import CostRow, PredictionRow, PublishedRow
from paceline.results.records import Records, Skipped
from paceline.strategy.distribution import FaultRecord
from paceline.trace import Span, Trace
from paceline.training.run import Epoch, Run
from paceline.workload import Workload
from tests.a_run import a_run
from tests.reporting.examples import (
    EVIL,
    a_distribution,
    a_measurement,
    a_virtual_run,
    an_outcome,
    broken_records,
    save_run,
)


class Page(HTMLParser):
    """What a browser would see: elements with their attributes, rows of tables, texts, and scripts apart from them."""

    VOID = ("meta", "link", "img", "br", "hr", "input")

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.rows: list[list[str]] = []
        self.scripts: list[str] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in self.VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")
        elif tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, f"</{tag}> closes something else"

    def handle_data(self, data):
        if "script" in self.open:
            self.scripts[-1] += data
        elif "style" not in self.open:
            self.text += data
            if "td" in self.open or "th" in self.open:
                self.rows[-1][-1] += data

    def tags(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.elements if tag == name]

    @property
    def data(self):
        return json.loads(self.scripts[0], parse_constant=pytest.fail)


def page_about(**found) -> Page:
    return Page(render(page_of(Records(**found))))


@pytest.fixture(scope="module")
def one() -> Page:
    return page_about(runs=[("runs/one", a_run())], measurements=[("m", a_measurement())])


def test_the_answer_comes_first_and_every_element_is_closed(one):
    assert one.open == []
    assert next(tag for tag, _ in one.elements if tag in ("h1", "h2")) == "h1"
    assert "lenet5 reached 81.2\u00a0% test accuracy" in one.text
    assert len(one.tags("h1")) == 1 and one.tags("html") == [{"lang": "en"}]


def test_there_are_landmarks_and_every_section_has_its_heading(one):
    for landmark in ("header", "nav", "main", "footer"):
        assert len(one.tags(landmark)) == 1, landmark
    ids = [given.get("id") for _, given in one.elements if given.get("id")]
    assert len(ids) == len(set(ids)), "an id stands for one element"
    for section in one.tags("section"):
        assert section["aria-labelledby"] in ids
    for link in one.tags("a"):
        assert link["href"].removeprefix("#") in ids


def test_every_figure_has_words_a_table_and_buttons(one):
    charts = [given for tag, given in one.elements if tag == "div" and given.get("class") == "chart"]
    figures = one.tags("figure")
    assert len(charts) == len(figures) == len(one.data["figures"]) >= 5
    assert all(chart["role"] == "img" and len(chart["aria-label"]) > 20 for chart in charts)
    saves = [given["data-save"] for given in one.tags("button") if "data-save" in given]
    assert saves == ["csv", "svg"] * len(figures)


def test_short_times_are_read_in_milliseconds_and_kept_in_seconds():
    m = replace(a_measurement(), iteration_s=Spread(0.004, 0.003, 0.005, 0.004))
    page = page_about(measurements=[("m", m)])
    assert any("iteration without measuring, ms" in row for row in page.rows)
    columns = [column for table in page.data["tables"] for column in table["columns"]]
    assert {"name": "iteration without measuring", "unit": "s", "values": [0.004]} in columns


def test_a_busy_machine_is_said_where_times_are_shown():
    busy = "this machine is busy (load 9.0 on 2 cores): times are longer than on an idle one"
    run = replace(a_run(), conditions=replace(a_run().conditions, busy=busy, made_in="/home/someone"))
    page = page_about(runs=[("a", run)])
    assert "The machine was busy with other work (load 9.0 on 2 cores): times are longer" in page.text
    assert "/home/someone" not in page.text
    slower = replace(run, conditions=replace(run.conditions, busy="the processor was 30 % slower at the end"))
    assert "Times are longer than usual: the processor was 30\u00a0% slower" in page_about(runs=[("a", slower)]).text
    assert "during 1 of 2 runs" in page_about(runs=[("a", run), ("b", a_run())]).text
    simulated = replace(a_virtual_run(), conditions=run.conditions)
    assert "was busy" not in page_about(runs=[("a", simulated)]).text


def test_tables_have_all_epochs_and_settings(one):
    assert ["1", "2.250", "12.50", "50.00", "2.125", "25.00", "62.50", "1,500", "2.500"] in one.rows
    assert ["device name", "A Processor"] in one.rows and ["threads", "2"] in one.rows
    assert ["width", "[6, 16]"] in one.rows and ["lr", "0.1"] in one.rows
    assert ["flat", "46 updates are too few for compiling to pay; 48 operations per step on cpu:0",
            "all 1,437 samples on cpu", "1"] in one.rows  # fmt: skip


def test_the_page_allows_itself_no_request_and_no_script_but_its_own(one):
    (policy,) = [given["content"] for given in one.tags("meta") if given.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; ")
    allowed = re.search(r"script-src ([^;]+);", policy).group(1).split()
    own = [f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in one.scripts[1:]]
    assert allowed == own and len(own) == 2
    assert not any(one.tags(tag) for tag in ("link", "img", "iframe", "object", "base", "form"))
    assert not any(key in ("src", "srcset", "action") for _, given in one.elements for key in given)
    assert not any(key.startswith("on") for _, given in one.elements for key in given)


def test_it_suits_phones_and_paper():
    text = render(page_of(Records(runs=[("a", a_run())])))
    assert text.startswith("<!doctype html>") and 'content="width=device-width, initial-scale=1"' in text
    assert "prefers-color-scheme:dark" in text and "@media print" in text


def test_the_library_is_there_with_its_licence():
    from importlib.resources import files

    folder = files("paceline.reporting").joinpath("assets", "echarts")
    script = folder.joinpath("echarts.min.js").read_text(encoding="utf-8")
    assert script.startswith("/*! Apache ECharts") and "</script" not in script and len(script) < 700_000
    assert "Apache License" in folder.joinpath("LICENSE-echarts").read_text(encoding="utf-8")
    for name in ("NOTICE-echarts", "LICENSE-zrender", "LICENSE-d3", "LICENSE-tslib"):
        assert folder.joinpath(name).is_file()


def evil_run() -> Run:
    d = a_distribution(faults=(FaultRecord(1.0, EVIL, 0, note=EVIL),))
    return a_run(
        workload=Workload(network=EVIL, data=EVIL, options={EVIL: EVIL}, init=EVIL),
        data=EVIL,
        placement={EVIL: 3},
        conditions=replace(a_run().conditions, device_name=EVIL),
        step=replace(a_run().step, reason=EVIL),
        status=EVIL,
        distribution=replace(d, strategy=replace(d.strategy, name=EVIL)),
        trace=Trace((Span("main", EVIL, 0, 1), Span(EVIL, EVIL, 0, 1, EVIL))),
    )


def evil_measurement() -> Measurement:
    m = a_measurement()
    layer = replace(m.layers[0], name=EVIL, kind=EVIL)
    return replace(
        m, name=EVIL, device_name=EVIL, layers=(layer, *m.layers[1:]), conditions={"step": EVIL, "data": EVIL}
    )


def evil_records() -> Records:
    return Records(
        runs=[(EVIL, evil_run()), ("b", a_virtual_run())],
        measurements=[(EVIL, evil_measurement())],
        predictions=[PredictionRow(EVIL, 1.0, 0.5, 2.0, 1.1, EVIL)],
        published=[PublishedRow(EVIL, 1.0, 2.0, EVIL, EVIL)],
        costs=[CostRow(EVIL, 1.0, EVIL, EVIL)],
        outcomes=[(EVIL, an_outcome(EVIL, EVIL))],
        skipped=[Skipped(EVIL, EVIL)],
        title=EVIL,
    )


def test_text_from_outside_is_text():
    clean = page_about(runs=[("a", a_run()), ("b", a_virtual_run())], measurements=[("m", a_measurement())])
    page = Page(render(page_of(evil_records())))
    assert page.open == [] and len(page.scripts) == len(clean.scripts) == 3, "no script but the page's own"
    assert page.tags("img") == [] and "document.title=" not in "".join(page.scripts[1:])
    assert not any(key.startswith("on") for _, given in page.elements for key in given)
    assert page.text.count("document.title='owned'") >= 20
    words = {word for table in page.data["tables"] for column in table["columns"] for word in column.get("words", ())}
    assert EVIL in words, "as it was, and only there where it is data"
    assert "{{7*7}}" in page.text and "49</script>" not in page.text


def test_figures_that_are_not_known_are_dashes():
    unknown = Epoch(1, 2.5, math.nan, math.nan, math.nan, math.nan, math.nan, 1.0, math.nan)
    run = a_run(epochs=(unknown,), samples_per_s=math.nan, test_accuracy=math.nan, test_top_accuracy=math.nan)
    page = page_about(runs=[("a", run)])
    assert not re.search(r"\b(nan|inf|None)\b", page.text)
    assert ["1", "2.500", "–", "–", "–", "–", "–", "–", "1"] in page.rows


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0, 0.0, 1e300])
def test_odd_numbers_do_not_cost_the_page(value):
    d = a_distribution(seconds=value, server_s=value)
    run = a_virtual_run(distribution=d, wall_s=value, train_s=value, test_loss=value, test_accuracy=value)
    m = a_measurement()
    parts = dict.fromkeys(m.parts_s, value)
    m = replace(m, iteration_s=replace(m.iteration_s, median_s=value, mean_s=value), accounted=value, parts_s=parts)
    m = replace(m, device_flops=value, device_bytes=value)
    runs = [("a", run), ("b", a_virtual_run("sync", 4)), ("c", a_virtual_run("sync", 8))]
    assert page_about(runs=runs, measurements=[("m", m)], price=value).open == []


def test_a_run_that_has_not_begun_has_a_page_too():
    page = page_about(runs=[("a", a_run(status="running", epochs=(), trace=Trace(), updates=0))])
    assert page.tags("figure") == [] and "was still running after 0 updates" in page.text


def test_what_was_skipped_is_counted_and_named(tmp_path):
    save_run(a_run(), tmp_path / "good")
    broken = broken_records(tmp_path / "bad")
    written = report([tmp_path], tmp_path / "report.html")
    page = Page(written.path.read_text(encoding="utf-8"))
    assert len(written.skipped) == broken and f"{broken} files could not be read" in page.text
    assert any(row[0].endswith("bad/cut/record.json") and "not a Paceline record" in row[1] for row in page.rows)


def test_the_same_records_make_the_same_page(tmp_path):
    for seed in range(3):
        save_run(a_virtual_run(seed=seed), tmp_path / str(seed))
    pages = [report([tmp_path], tmp_path / name).path.read_bytes() for name in ("a.html", "b.html")]
    assert pages[0] == pages[1]


def test_the_function_tells_what_it_wrote(tmp_path):
    save_run(a_run(), tmp_path / "runs")
    for name, column in (("predictions", "predicted"), ("published", "published"), ("costs", "amount")):
        (tmp_path / "runs" / f"{name}.csv").write_text(f"name,{column}\na,1\n")
    written = report([tmp_path / "runs"], tmp_path, title="All of it", price=1.0)
    assert written.path == tmp_path / "report.html" and written.size_bytes == written.path.stat().st_size
    assert written.counts == {"runs": 1, "predictions": 1, "published figures": 1, "costs": 1}
    assert "<title>All of it – Paceline</title>" in written.path.read_text(encoding="utf-8")
    with pytest.raises(InputError, match="price=-1"):
        report([tmp_path / "runs"], tmp_path, price=-1)


def test_the_summary_of_a_run_is_written_beside_its_record(tmp_path):
    path = write_summary(a_run(), tmp_path)
    assert path == tmp_path / "summary.html"
    assert "81.2 %" in path.read_text(encoding="utf-8")
    assert not any("layers" in given.values() for given in Page(path.read_text(encoding="utf-8")).tags("figure"))
    record.save(a_measurement(), tmp_path / "measure" / "worker-0" / "measurement.json")
    page = Page(write_summary(a_run(), tmp_path).read_text(encoding="utf-8"))
    assert any(given.get("data-figure") == "layers" for given in page.tags("figure")), "with what was measured there"


def test_a_file_name_that_is_not_text_does_not_cost_the_page(tmp_path):
    folder = os.fsdecode(b"images:photos\xff")
    text = write_summary(a_run(workload=Workload(data=folder)), tmp_path).read_text(encoding="utf-8")
    assert "images:photos\\udcff" in text
