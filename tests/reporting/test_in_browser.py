"""What people meet: the page in a real browser, in light and dark, on a phone, with a keyboard, and with evil names."""

from __future__ import annotations

import csv
import io
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from paceline import record
from paceline.reporting.page import page_of, render, report
from paceline.results.comparison_rows import PublishedRow
from paceline.results.records import Records
from paceline.trace import Span, Trace
from tests.reporting.browser import Tab
from tests.reporting.examples import EVIL, a_measurement, a_virtual_run, broken_records, many_runs
from tests.reporting.test_page import evil_records

AXE = Path(__file__).parent / "axe" / "axe.min.js"
"""axe-core 4.14.0, Mozilla Public License 2.0, kept here as test data with its licence; no part of the package."""


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> Path:
    """A page with every kind of figure."""
    place = tmp_path_factory.mktemp("study")
    many_runs(place / "runs", ["downpour", "sync"], [2, 4, 8], seeds=2)
    record.save(a_measurement(), place / "measure" / "measurement.json")
    broken_records(place / "broken")
    predictions = "name,predicted,low,high,measured\none epoch,11,9,12,10\nan iteration,0.5,0.4,0.6,\n"
    (place / "predictions.csv").write_text(predictions)
    published = "name,published,ours,unit,source\nepoch,3.5,3.6,s,a study\naccuracy,97,98,%,a study\n"
    (place / "published.csv").write_text(published)
    return report([place], place / "page.html", price=2.0).path


def ids(tab: Tab) -> list[str]:
    return tab.ask("[...document.querySelectorAll('figure')].map(f => f.dataset.figure)")


def test_every_figure_is_drawn_without_a_complaint_or_a_request(open_page, study):
    tab = open_page(study)
    tab.draw_everything()
    assert set(ids(tab)) == {
        "predictions", "published", "parts", "layers", "accuracy-time", "accuracy-updates", "throughput", "efficiency",
        "time-by-workers", "time-to-accuracy", "shares", "by-worker", "staleness", "timeline", "costs",
        "accuracy-by-workers", "time-to-loss", "doubling",
    }  # fmt: skip
    drawn = tab.ask(
        "[...document.querySelectorAll('figure')].map(f => { const c = f.querySelector('canvas');"
        " if (c) { const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
        " return d.some(v => v !== 0) ? 1000 : 0; }"
        " return f.querySelectorAll('.chart svg path, .chart svg rect').length; })"
    )
    assert all(shapes > 8 for shapes in drawn), dict(zip(ids(tab), drawn, strict=True))
    assert tab.complaints() == [] and tab.requests() == []


def test_a_script_that_is_not_the_page_s_own_would_not_run(open_page, study, tmp_path):
    text = study.read_text(encoding="utf-8")
    assert "</main>" in text
    page = tmp_path / "tampered.html"
    evil = "<script>document.title='owned'</script><img src='https://example.invalid/x.png'></main>"
    page.write_text(text.replace("</main>", evil), encoding="utf-8")
    tab = open_page(page)
    assert tab.ask("document.title") != "owned"
    assert any("Content Security Policy" in said for said in tab.complaints())


def test_names_that_look_like_markup_are_text(open_page, tmp_path):
    page = tmp_path / "page.html"
    page.write_text(render(page_of(evil_records())), encoding="utf-8", errors="backslashreplace")
    tab = open_page(page, downloads=tmp_path)
    tab.draw_everything()
    for place in range(tab.ask("document.querySelectorAll('figure').length")):
        tab.ask(  # every box at the pointer, every view, every table
            f"(() => {{ const f = document.querySelectorAll('figure')[{place}]; const s = f.querySelector('select');"
            "f.querySelector('details').open = true;"
            "if (s) for (const o of s.options) { s.value = o.value; s.dispatchEvent(new Event('change')); }"
            "const r = f.querySelector('.chart').getBoundingClientRect();"
            "const t = f.querySelector('.chart svg, .chart canvas'); const clientY = r.top + r.height / 3;"
            "for (let x = 0.1; x < 1; x += 0.2) for (const kind of ['mousemove', 'mouseover'])"
            "  t.dispatchEvent(new MouseEvent(kind, {bubbles: true, clientX: r.left + x * r.width, clientY}));"
            "})()"
        )
    tab.ask("document.querySelector('#theme').click()")
    assert tab.ask("document.title").startswith("<script>document.title='owned'")
    assert tab.ask("document.querySelectorAll('img').length") == 0
    assert tab.ask("document.querySelectorAll('script').length") == 3
    assert tab.ask('document.body.innerText.includes("<img src=x onerror")')
    assert tab.complaints() == [] and tab.requests() == []


def column(tab: Tab, place: int) -> list[str]:
    rows = "[...document.querySelectorAll('#runs-table tbody tr')].filter(r => !r.hidden)"
    return tab.ask(f"{rows}.map(r => r.cells[{place}].textContent)")


def enter(tab: Tab, field: str, value: str, event: str) -> None:
    place = f"document.querySelector({field!r})"
    tab.ask(f"{place}.value = {value!r}; {place}.dispatchEvent(new Event({event!r}))")


def test_the_table_is_sorted_with_the_keyboard(open_page, study):
    tab = open_page(study)
    names = tab.ask("[...document.querySelectorAll('#runs-table thead th')].map(t => t.textContent)")
    place = names.index("test accuracy, %")
    tab.ask(f"document.querySelectorAll('#runs-table thead button')[{place}].focus()")
    tab.press("Enter")
    up = [float(text) for text in column(tab, place)]
    assert up == sorted(up) and len(up) == 12
    assert tab.ask(f"document.querySelectorAll('#runs-table thead th')[{place}].ariaSort") == "ascending"
    tab.press(" ")
    down = [float(text) for text in column(tab, place)]
    assert down == sorted(down, reverse=True)
    assert tab.ask("document.querySelectorAll('#runs-table th[aria-sort]').length") == 1
    tab.ask("document.querySelectorAll('#runs-table thead button')[0].click()")
    assert column(tab, 0)[0] == "downpour · 2 workers · seed 0", "words in their order, numbers in them by size"


def test_what_is_not_known_comes_last_whichever_way(open_page, study):
    tab = open_page(study)
    names = tab.ask("[...document.querySelectorAll('#runs-table thead th')].map(t => t.textContent)")
    place = next(i for i, name in enumerate(names) if name.startswith("time to"))
    for _ in range(2):
        tab.ask(f"document.querySelectorAll('#runs-table thead button')[{place}].click()")
        assert column(tab, place)[-1] == "–" and column(tab, place)[0] != "–"


def test_filtering_the_table_filters_the_curves(open_page, study):
    tab = open_page(study)
    tab.draw("accuracy-updates")
    lines = "document.querySelectorAll('#figure-accuracy-updates .legend li').length"
    assert tab.ask(lines) == 6
    tab.ask("document.querySelector('#filter').focus()")
    tab.call("Input.insertText", text="SYNC workers=8")
    assert column(tab, 0) == ["sync · 8 workers · seed 0", "sync · 8 workers · seed 1"]
    assert tab.ask("document.querySelector('#filtered').textContent").startswith("2 of 12 rows")
    assert tab.ask(lines) == 0, "one line needs no legend"
    for words, many in (("no such run", 0), ("seed=1", 6), ("syn", 6), ("down 4", 2), ("place=study", 12)):
        enter(tab, "#filter", words, "input")
        assert len(column(tab, 0)) == many, words
    enter(tab, "#filter", "", "input")
    assert tab.ask(lines) == 6 and len(column(tab, 0)) == 12 and tab.complaints() == []


def saved(folder: Path, pattern: str) -> str:
    """The text of a download once it is whole: its name is there, empty, before its content is."""
    until_s = time.monotonic() + 60
    while not (found := [p for p in folder.glob(pattern) if p.stat().st_size]) or list(folder.glob("*.crdownload")):
        assert time.monotonic() < until_s, f"{pattern} never came"
        time.sleep(0.05)
    return found[0].read_text(encoding="utf-8")


def test_the_data_of_a_figure_are_saved_as_csv(open_page, study, tmp_path):
    tab = open_page(study, downloads=tmp_path)
    tab.draw("layers")
    tab.ask("document.querySelector('#figure-layers [data-save=csv]').click()")
    rows = list(csv.DictReader(io.StringIO(saved(tmp_path, "*-layers.csv"))))
    assert [row["layer"] for row in rows] == [f"conv{i}" for i in range(1, 7)]
    assert float(rows[2]["backward [s]"]) == pytest.approx(6e-4)
    tab.ask("document.querySelector('[data-save-listing=runs-table]').click()")
    assert len(list(csv.reader(io.StringIO(saved(tmp_path, "*-runs-table.csv"))))) == 13


def test_a_name_that_a_spreadsheet_would_run_is_saved_as_text(open_page, tmp_path):
    m = a_measurement()
    evil = replace(m, layers=(replace(m.layers[0], name='=HYPERLINK("x","y")'), *m.layers[1:]))
    page = tmp_path / "page.html"
    page.write_text(render(page_of(Records(measurements=[("m", evil)]))))
    tab = open_page(page, downloads=tmp_path)
    tab.draw("layers")
    tab.ask("document.querySelector('#figure-layers [data-save=csv]').click()")
    rows = list(csv.reader(io.StringIO(saved(tmp_path, "*-layers.csv"))))
    assert rows[1][0] == '\'=HYPERLINK("x","y")'


def test_a_figure_is_saved_as_svg_dark_on_light(open_page, study, tmp_path):
    tab = open_page(study, downloads=tmp_path, dark=True)
    tab.draw("throughput", "timeline", "predictions")
    for name in ("throughput", "timeline", "predictions"):
        tab.ask(f"document.querySelector('#figure-{name} [data-save=svg]').click()")
        svg = ElementTree.fromstring(saved(tmp_path, f"*-{name}.svg"))
        assert svg.tag.endswith("svg") and len(list(svg.iter())) > 20
        assert "#ffffff" in ElementTree.tostring(svg, "unicode").lower().replace("rgb(255,255,255)", "#ffffff")
    assert tab.complaints() == []


def test_another_view_changes_drawing_and_table(open_page, study):
    tab = open_page(study)
    tab.draw("published")
    enter(tab, "#figure-published select", "1", "change")
    assert tab.ask("document.querySelector('#figure-published').dataset.drawn") == "1"
    cells = tab.ask("[...document.querySelectorAll('#figure-published tbody tr')].map(r => r.cells[0].textContent)")
    assert cells == ["accuracy"]


def test_a_part_is_hidden_with_its_button(open_page, study):
    tab = open_page(study)
    tab.draw("layers")
    paths = "document.querySelectorAll('#figure-layers .chart svg path').length"
    before = tab.ask(paths)
    tab.ask("document.querySelector('#figure-layers .legend button').focus()")
    tab.press("Enter")
    assert tab.ask("document.querySelector('#figure-layers .legend button').ariaPressed") == "false"
    tab.until(f"{paths} < {before}")


def test_the_timeline_is_zoomed_with_its_buttons(open_page, study):
    tab = open_page(study)
    tab.draw("timeline")
    tab.ask("document.querySelector('#figure-timeline [data-zoom=in]').focus()")
    zoomed = "document.querySelector('#figure-timeline').dataset.zoom"
    tab.press("Enter")
    assert tab.ask(zoomed) == "25.000 75.000"
    for name, expected in (("later", "50.000 100.000"), ("earlier", "25.000 75.000"), ("out", "0.000 100.000")):
        tab.ask(f"document.querySelector('#figure-timeline [data-zoom={name}]').click()")
        assert tab.ask(zoomed) == expected
    tab.ask("document.querySelector('#figure-timeline [data-zoom=later]').click()")
    assert tab.ask(zoomed) == "0.000 100.000", "never beyond the end"


def ink(tab: Tab) -> tuple[str, str]:
    paper = tab.ask("getComputedStyle(document.body).backgroundColor")
    text = tab.ask("document.querySelector('#figure-throughput .chart svg text').getAttribute('fill') || ''")
    return paper, text


def test_light_and_dark_are_those_of_the_system_until_one_is_chosen(open_page, study):
    tab = open_page(study)
    tab.draw("throughput")
    light = ink(tab)
    tab.dark(True)
    tab.until("getComputedStyle(document.body).backgroundColor === 'rgb(17, 21, 27)'")
    assert light[0] == "rgb(255, 255, 255)"
    until_s = time.monotonic() + 10
    while ink(tab)[1] == light[1]:  # the drawings follow with the next frame
        assert time.monotonic() < until_s, "the drawings follow, too"
    assert tab.ask("document.querySelector('#theme').textContent") == "light"
    tab.ask("document.querySelector('#theme').click()")
    assert ink(tab) == light, "the button has the last word"
    tab.call("Page.reload")
    tab.browser.wait_for("Page.loadEventFired", tab.session)
    assert tab.ask("getComputedStyle(document.body).backgroundColor") == light[0], "and is remembered"
    assert tab.complaints() == []


@pytest.mark.parametrize(
    ("width", "dark"),
    [(360, False), (1280, True), *(pytest.param(*how, marks=pytest.mark.slow) for how in ((768, True), (1600, False)))],
)
def test_nothing_is_wider_than_the_screen(open_page, study, width, dark):
    tab = open_page(study, width=width, height=780, dark=dark)
    tab.draw_everything()
    tab.ask("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert tab.ask("document.documentElement.scrollWidth") <= width
    right = "[...document.querySelectorAll('.chart svg, .chart canvas')].map(c => c.getBoundingClientRect().right)"
    assert max(tab.ask(right)) <= width
    cells = "[...document.querySelectorAll('.listing th, .listing td')]"
    clipped = f"{cells}.filter(c => c.scrollWidth > c.clientWidth && getComputedStyle(c).overflowX != 'visible')"
    assert tab.ask(f"{clipped}.map(c => c.textContent)") == []
    assert tab.complaints() == []


def test_names_of_bars_are_told_apart_on_a_phone(open_page, tmp_path):
    """They differ in their last words, and stand in several lines that do not run into each other."""
    names = [f"communication of the small network at batch {batch}" for batch in (100, 500, 2000)]
    given = Records(published=[PublishedRow(name, 2.0, 1.0, "s") for name in names])
    page = tmp_path / "page.html"
    page.write_text(render(page_of(given)), encoding="utf-8")
    tab = open_page(page, width=360, height=780)
    tab.draw_everything()
    texts = "[...document.querySelectorAll('#figure-published .chart svg text')]"
    said = " ".join(tab.ask(f"{texts}.map(t => t.textContent)"))
    assert all(f"batch {batch}" in " ".join(said.split()) for batch in (100, 500, 2000)), said
    boxes = tab.ask(
        f"{texts}.filter(t => /[a-z]{{3}}/.test(t.textContent)).map(t => t.getBoundingClientRect())"
        ".map(b => [b.top, b.bottom])"
    )
    ordered = sorted(boxes)
    assert len(ordered) >= 6 and all(a[1] <= b[0] + 3 for a, b in pairwise(ordered)), ordered
    assert tab.complaints() == []


def test_turning_a_phone_redraws(open_page, study):
    tab = open_page(study, width=360, height=780)
    tab.draw_everything()
    tab.call("Emulation.setDeviceMetricsOverride", width=780, height=360, deviceScaleFactor=1, mobile=True)
    tab.until("document.querySelector('#figure-throughput .chart svg').getBoundingClientRect().width > 200")
    fits = "c => Math.abs(c.firstElementChild.clientWidth - c.clientWidth) < 3"
    tab.until(f"[...document.querySelectorAll('.chart')].every({fits})")


@pytest.mark.parametrize(
    ("width", "dark"),
    [(1280, False), *(pytest.param(*how, marks=pytest.mark.slow) for how in ((1280, True), (360, False)))],
)
def test_no_serious_barrier_is_found(open_page, study, width, dark):
    tab = open_page(study, width=width, dark=dark)
    tab.draw_everything()
    tab.ask("document.querySelectorAll('details').forEach(d => d.open = true)")
    tab.ask(AXE.read_text(encoding="utf-8") + ";0")
    found = tab.ask(
        "axe.run(document, {resultTypes: ['violations']}).then(r => r.violations"
        ".filter(v => ['serious', 'critical'].includes(v.impact))"
        ".map(v => v.id + ': ' + v.help + ' ' + v.nodes.slice(0, 2).map(n => n.html.slice(0, 160)).join(' | ')))"
    )
    assert found == []


def test_paper_is_light_and_has_every_figure(open_page, study):
    tab = open_page(study, dark=True)
    done = tab.call("Page.printToPDF", printBackground=True)
    assert len(done["data"]) > 100_000
    tab.call("Emulation.setEmulatedMedia", media="print", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    assert tab.ask("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert tab.ask("[...document.querySelectorAll('figure')].every(f => f.dataset.drawn !== undefined)")
    folded = "[...document.querySelectorAll('details.listing:not([open])')].map(d => d.offsetHeight)"
    assert set(tab.ask(folded)) == {0}, "a title that nobody can unfold"
    assert tab.ask("getComputedStyle(document.querySelector('[data-runs]').closest('section')).page") == "runs"
    assert tab.complaints() == []


def test_without_scripts_there_are_words_and_tables(browser, study):
    tab = Tab(browser, Path("/dev/null"))
    tab.call("Emulation.setScriptExecutionDisabled", value=True)
    tab.call("Page.navigate", url=study.as_uri())
    browser.wait_for("Page.loadEventFired", tab.session)
    root = tab.call("DOM.getDocument", depth=1)["root"]["nodeId"]
    tables = tab.call("DOM.querySelectorAll", nodeId=root, selector="figure table tbody tr")["nodeIds"]
    notes = tab.call("DOM.querySelectorAll", nodeId=root, selector="noscript p")["nodeIds"]
    assert len(tables) > 50 and len(notes) == 1
    tab.close()


@pytest.mark.serial
@pytest.mark.slow
def test_a_page_about_200_runs_is_small_and_quick(open_page, tmp_path):
    many_runs(tmp_path / "runs", ["downpour", "sync", "mixed", "delay-compensated", "local-sgd"], [2, 4, 8, 16], 10, 20)
    written = report([tmp_path / "runs"], tmp_path / "page.html")
    assert written.counts == {"runs": 200} and written.size_bytes < 10e6
    seconds = []
    for _ in range(3):
        tab = open_page(written.path)
        tab.until("document.querySelector('figure').dataset.drawn !== undefined")
        seconds.append(tab.ask("performance.getEntriesByType('navigation')[0].loadEventEnd / 1000"))
        assert tab.complaints() == []
    assert min(seconds) < 2.0, seconds
    tab.draw_everything()
    assert tab.ask("document.querySelectorAll('#runs-table tbody tr').length") == 200


def test_a_trace_of_a_hundred_thousand_spans_is_drawn(open_page, tmp_path):
    spans = tuple(
        Span(f"worker {w}", what, s + shift, s + shift + 0.4)
        for w in range(100) for s in range(500) for what, shift in (("compute", 0.0), ("fetch", 0.5))
    )  # fmt: skip
    page = tmp_path / "page.html"
    page.write_text(render(page_of(Records(runs=[("a", a_virtual_run(workers=100, trace=Trace(spans)))]))))
    assert page.stat().st_size < 3e6
    tab = open_page(page)
    tab.draw("timeline")
    assert "the first 20,000 of 100,000 spans" in tab.ask("document.querySelector('#figure-timeline').textContent")
    assert tab.complaints() == []


def test_evil_is_what_is_tested():
    assert "<script>" in EVIL and "onerror" in EVIL and "</script>" in EVIL
