"""A chart shows every finite value, between round numbers, with labels that can be told apart."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ElementTree
from itertools import pairwise

import pytest

from paceline.report.chart import (
    BOTTOM,
    HEIGHT,
    LABEL_HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Series,
    label_heights,
    line_chart,
    nice_ticks,
    whole_ticks,
)


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0, 1, [0, 0.25, 0.5, 0.75, 1]),
        (10.3, 99.9, [0, 25, 50, 75, 100]),
        (96.4, 100, [96, 97, 98, 99, 100]),
        (0.009, 2.4998, [0, 1, 2, 3]),
        (-0.3, 0.3, [-0.4, -0.2, 0, 0.2, 0.4]),
        (5e6, 2e7, [5e6, 1e7, 1.5e7, 2e7]),
        (1e-12, 2e-12, [1e-12, 1.25e-12, 1.5e-12, 1.75e-12, 2e-12]),
    ],
)
def test_ticks_are_round_numbers_around_the_values(low, high, ticks):
    assert nice_ticks(low, high) == pytest.approx(ticks, rel=1e-12)


@pytest.mark.parametrize(
    ("value", "ticks"),
    [
        (100, [0, 25, 50, 75, 100]),
        (0, [0, 0.25, 0.5, 0.75, 1]),
        (-3, [-3, -2, -1, 0]),
        (1e17, [0, 2.5e16, 5e16, 7.5e16, 1e17]),
        (5e-324, [0, 0.25, 0.5, 0.75, 1]),
    ],
)
def test_a_single_value_is_shown_with_the_way_from_zero(value, ticks):
    assert nice_ticks(value, value) == pytest.approx(ticks)


@pytest.mark.parametrize("low", [-7.3, 0.0, 1e-7, 0.37, 99.0, 12345.6])
@pytest.mark.parametrize("span", [1e-3, 0.1, 0.7, 1.0, 3.3, 64.0, 9e5])
def test_ticks_enclose_any_range_and_are_few(low, span):
    ticks = nice_ticks(low, low + span)
    assert ticks[0] <= low + 1e-8 * span and ticks[-1] >= low + span - 1e-8 * span
    assert 3 <= len(ticks) <= 7
    assert ticks == sorted(set(ticks))
    # No tick more than needed: the values reach into the first and the last interval.
    assert ticks[1] > low and ticks[-2] < low + span


@pytest.mark.parametrize(
    ("last", "ticks"),
    [
        (1, [1]),
        (2, [1, 2]),
        (7, [1, 2, 3, 4, 5, 6, 7]),
        (20, [1, 5, 10, 15, 20]),
        (100, [1, 20, 40, 60, 80, 100]),
        (160, [1, 50, 100, 160]),
        (500, [1, 100, 200, 300, 400, 500]),
    ],
)
def test_epochs_are_marked_at_round_whole_numbers(last, ticks):
    assert whole_ticks(1, last) == ticks


def test_marks_of_epochs_do_not_touch():
    for last in range(1, 300):
        ticks = whole_ticks(1, last)
        assert ticks[0] == 1 and ticks[-1] == last and len(ticks) <= 8
        assert all(b - a >= max(1, (last - 1) / 13) for a, b in pairwise(ticks))


def test_labels_are_moved_apart_and_stay_above_the_axis():
    assert label_heights([20.0, 100.0], 210) == [20, 100]
    assert label_heights([20.0, 21.0], 210) == [20, 20 + LABEL_HEIGHT]
    assert label_heights([21.0, 20.0], 210) == [20 + LABEL_HEIGHT, 20]
    assert label_heights([210.0, 209.0], 210) == [210, 210 - LABEL_HEIGHT]
    assert label_heights([], 210) == []


def drawn(*series: Series, title: str = "Loss") -> ElementTree.Element:
    return ElementTree.fromstring(line_chart(title, list(series), "epoch", "%"))


def points(svg: ElementTree.Element, number: int) -> list[tuple[float, float]]:
    (line,) = [e for e in svg.iter("polyline") if e.get("class") == f"line line{number}"]
    return [(float(x), float(y)) for x, y in re.findall(r"([\d.-]+),([\d.-]+)", line.get("points", ""))]


def texts(svg: ElementTree.Element) -> list[str]:
    return [element.text or "" for element in svg.iter("text")]


def test_values_are_where_the_axes_say():
    svg = drawn(Series("training", [1, 2, 3], [0, 50, 100]))
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    assert points(svg, 0) == [(LEFT, bottom), ((LEFT + right) / 2, (bottom + TOP) / 2), (right, TOP)]
    assert texts(svg) == ["0 %", "25 %", "50 %", "75 %", "100 %", "1", "2", "3", "epoch", "training"]


def test_it_has_a_title_for_those_who_cannot_see_it():
    assert drawn(Series("a", [1], [1]), title='"Loss" & <more>').get("aria-label") == '"Loss" & <more>'


def test_names_are_escaped():
    chart = line_chart("t", [Series("<script>", [1, 2], [1, 2])], "<b>", "%")
    assert "<script>" not in chart and "<b>" not in chart
    assert {"<script>", "<b>"} <= set(texts(ElementTree.fromstring(chart)))


def test_values_that_are_no_numbers_are_left_out():
    svg = drawn(Series("a", [1, 2, 3, 4], [1, math.nan, 3, math.inf]), Series("b", [1, 2, 3, 4], [math.nan] * 4))
    assert len(points(svg, 0)) == 2
    assert "a" in texts(svg) and "b" not in texts(svg), "a line that is not drawn has no label"


def test_without_any_number_there_is_no_chart():
    assert line_chart("t", [Series("a", [1], [math.nan]), Series("b", [], [])], "epoch", "%") == ""
    assert line_chart("t", [], "epoch", "%") == ""


@pytest.mark.parametrize("values", [[5.0], [5.0, 5.0], [0.0, 0.0], [1e-300, 2e-300], [-1e30, 1e30]])
def test_everything_stays_inside_the_drawing(values):
    svg = drawn(Series("a", list(range(len(values))), values), Series("b", list(range(len(values))), values))
    for number in (0, 1):
        for x, y in points(svg, number):
            assert LEFT <= x <= WIDTH - RIGHT and TOP <= y <= HEIGHT - BOTTOM
