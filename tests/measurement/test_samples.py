"""What marks cost in place is divided among layers by their marks, and never more than half of what a layer took."""

from __future__ import annotations

import pytest

from paceline.measurement.samples import ENOUGH, Sample, mark_factors, without_marks

A, B, C, UPDATE = ("forward", "a"), ("forward", "b"), ("backward", "a"), ("update", "")


def layered(spans_s, marks_s, count=ENOUGH):
    return [Sample(number, dict(spans_s), 1.0, marks_s=dict(marks_s)) for number in range(count)]


def coarse(forward_s, backward_s, count=ENOUGH):
    spans_s = {("forward", "model"): forward_s, ("backward", "(outside any module)"): backward_s}
    return [Sample(number, spans_s, 1.0) for number in range(count)]


def parts_of(samples, others):
    factors = mark_factors(samples, others)
    cleaned = without_marks(samples[0], factors)
    return cleaned.part_s("forward"), cleaned.part_s("backward"), cleaned.spans_s


def test_layers_add_up_to_the_passes_without_marks_at_layers():
    samples = layered({A: 60e-6, B: 70e-6, C: 200e-6, UPDATE: 50e-6}, {A: 4e-6, B: 8e-6, C: 2e-6, UPDATE: 1e-6})
    forward_s, backward_s, spans_s = parts_of(samples, coarse(118e-6, 195e-6))
    assert forward_s == pytest.approx(118e-6) and backward_s == pytest.approx(195e-6)
    # 12 us more than known, by known costs of 4 and 8 us
    assert spans_s[A] == pytest.approx(56e-6) and spans_s[B] == pytest.approx(62e-6)
    assert spans_s[UPDATE] == 50e-6


def test_an_operation_that_takes_no_time_loses_at_most_half_of_it():
    samples = layered({A: 1e-6, B: 100e-6}, {A: 5e-6, B: 5e-6})
    forward_s, _, spans_s = parts_of(samples, coarse(91e-6, 0.0))
    assert spans_s[A] == pytest.approx(0.5e-6) and forward_s == pytest.approx(91e-6)


def test_more_than_marks_can_cost_is_not_subtracted():
    samples = layered({A: 1e-3}, {A: 1e-6})
    forward_s, _, _ = parts_of(samples, coarse(0.5e-3, 0.0))
    assert forward_s == pytest.approx(1e-3 - 9e-6)


@pytest.mark.parametrize("faster_s", [0.0, 10e-6])
def test_nothing_is_added(faster_s):
    samples = layered({A: 100e-6}, {A: 1e-6})
    assert parts_of(samples, coarse(100e-6 + faster_s, 0.0))[0] == pytest.approx(100e-6)


def test_few_samples_prove_nothing():
    samples = layered({A: 100e-6}, {A: 5e-6})
    assert mark_factors(samples, coarse(90e-6, 0.0, ENOUGH - 1)) == {}
    assert mark_factors(samples[1:], coarse(90e-6, 0.0)) == {}
