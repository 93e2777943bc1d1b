"""Results show themselves in a notebook and give their rows to pandas."""

from __future__ import annotations

import builtins
import dataclasses
import math
import sys
from html.parser import HTMLParser

import pytest

import paceline
from paceline.notebook import MOST_ROWS, facts_and_rows, html_of
from tests.a_run import a_run


class Cells(HTMLParser):
    """The texts of a table's cells by row, and whether every tag is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.rows: list[list[str]] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1].append(data)


@pytest.fixture(scope="module")
def records():
    run = paceline.train("mlp", data="digits", epochs=2)
    predicted = paceline.predict("mlp", "H200", data="digits")
    measured = paceline.measure("mlp", data="digits", iterations=20)
    simulated = paceline.simulate("mlp", workers=2, compute_time=0.01, steps=5)
    scaling = paceline.simulate("mlp", workers=[1, 2], cluster="g2-standard-8", data="digits")
    plan = paceline.plan("mlp", "g2-standard-8", data="digits", epochs=1, strategies="sync")
    verified = paceline.verify(predicted, measured)
    return [run, predicted, measured, simulated, scaling, plan, verified]


def test_each_is_a_table_with_a_cell_for_every_heading(records):
    for record in records:
        text = record._repr_html_()
        rows = Cells(text).rows
        assert type(record).__name__ in text and "mlp" in text
        assert len({len(row) for row in rows}) <= 1 and len(rows) == (1 + len(record.table()) if record.table() else 0)


def test_each_is_printed_as_facts_and_a_table_and_represented_in_one_line(records):
    for record in records:
        lines = str(record).splitlines()
        assert "mlp" in lines[0] and "Workload(" not in str(record) and max(map(len, lines)) < 400
        assert len(lines) > len(record.table())
        assert repr(record).startswith(f"<{type(record).__name__} network='mlp'") and len(repr(record)) < 400
    assert str(records[0]).startswith("Run: network mlp, data digits, status finished")
    unlabelled = dataclasses.replace(records[0], test_accuracy=math.nan)
    assert "accuracy=0" in repr(records[0]) and "accuracy" not in repr(unlabelled)


def test_rows_of_a_run_are_its_epochs(records):
    assert [row["epoch"] for row in records[0].table()] == [1, 2]
    assert Cells(records[0]._repr_html_()).rows[1][0] == "1"


def test_columns_of_text_are_aligned_and_long_tables_are_cut():
    rows = [{"name": "a" * i, "n": 10.0**i} for i in range(MOST_ROWS + 5)]
    lines = facts_and_rows("Title", {"fact": 1234}, rows).splitlines()
    assert lines[0] == "Title: fact 1,234" and lines[-1] == "5 more rows" and len(lines) == MOST_ROWS + 3
    assert len({len(line) for line in lines[2:-1]}) == 1


def test_times_have_units_and_what_has_no_value_is_left_out():
    rows = [{"layer": "a", "forward_s": 1.5e-5, "samples_per_s": 20.0, "metric": math.nan}] * 2
    lines = facts_and_rows("Title", {"iteration_s": 0.0123, "accuracy": math.nan}, rows).splitlines()
    assert lines[0] == "Title: iteration 12.3 ms"
    assert [line.split() for line in lines[1:3]] == [["layer", "forward", "samples_per_s"], ["a", "15.0", "µs", "20"]]
    assert Cells(html_of("Title", {}, rows)).rows[:2] == [["layer", "forward", "samples_per_s"], ["a", "15.0 µs", "20"]]


def test_large_numbers_are_written_out():
    facts = {"samples_per_s": 19_183.7, "updates_per_s": 1234.56, "loss": 0.66231, "money": 5.9381e-6}
    shown = facts_and_rows("Title", facts)
    assert shown == "Title: samples_per_s 19,184, updates_per_s 1,235, loss 0.6623, money 5.938e-06"


def test_text_is_escaped_and_long_tables_are_cut():
    text = html_of("<a>", {"b<": "<c>"}, [{"n": i} for i in range(MOST_ROWS + 5)])
    assert "<a>" not in text and "<c>" not in text and "5 more rows" in text
    assert len(Cells(text).rows) == MOST_ROWS + 1


def test_rows_become_a_frame(records):
    pandas = pytest.importorskip("pandas")
    frames = [record.to_pandas() for record in records]
    assert all(isinstance(frame, pandas.DataFrame) and len(frame) for frame in frames)
    assert list(frames[0]["epoch"]) == [1, 2]


def test_without_pandas_one_line_says_how_to_get_it(records, monkeypatch):
    importing = builtins.__import__

    def refuse(name, *rest, **named):
        if name == "pandas":
            raise ImportError(name)
        return importing(name, *rest, **named)

    monkeypatch.delitem(sys.modules, "pandas", raising=False)
    monkeypatch.setattr(builtins, "__import__", refuse)
    for shown in (records[0], paceline.devices()):
        with pytest.raises(paceline.PacelineError, match=r"pip install paceline\[pandas\]"):
            shown.to_pandas()


@pytest.mark.parametrize("name", ["models", "devices", "links", "machines", "datasets", "strategies", "studies"])
def test_a_listing_has_its_items_by_number_and_by_name(name):
    listing = getattr(paceline, name)()
    assert len(listing) == len(list(listing)) > 2
    assert listing[listing.names[1]] == listing[1] and listing.names[1] in listing and listing[1] in listing
    assert len(Cells(listing._repr_html_()).rows) == min(len(listing), MOST_ROWS) + 1
    lines = str(listing).splitlines()
    assert lines[0] == name and listing.names[1] in lines[3] and len(lines) >= min(len(listing), MOST_ROWS) + 2
    with pytest.raises(paceline.InputError, match=f"no 'nonsense' among the {name}"):
        listing["nonsense"]


def test_samples_without_a_score_are_a_column_where_there_are_some():
    run = a_run()
    assert "unscored" not in str(run) and "unscored" not in run.to_pandas().columns
    last = dataclasses.replace(run.epochs[-1], unscored=3)
    lost = dataclasses.replace(run, epochs=(*run.epochs[:-1], last))
    assert "unscored" in str(lost)
