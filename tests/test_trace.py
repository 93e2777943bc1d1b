"""Spans say who did what and when; a trace adds them up."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest

from paceline.testing import FakeClock
from paceline.trace import Recorder, Span, Trace


def test_a_span_knows_how_long_it_took_and_stays_as_it_is():
    span = Span("main", "train", 1.5, 4.0)
    assert span.duration_s == 2.5
    with pytest.raises(FrozenInstanceError):
        span.end_s = 9.0


def test_a_trace_adds_up_what_was_done_and_names_it_in_order():
    trace = Trace((Span("a", "train", 0, 2), Span("b", "validate", 2, 3), Span("b", "train", 3, 7)))
    assert trace.total_s("train") == 6
    assert trace.total_s("validate") == 1
    assert trace.total_s("sleep") == 0
    assert trace.parts() == ("train", "validate")


def test_time_counts_from_the_first_look_at_the_clock():
    clock = FakeClock(100.0)
    recorder = Recorder(who="worker 3", clock=clock)
    assert recorder.now() == 0.0
    clock.sleep(3.0)
    with recorder.span("train", "epoch 1"):
        clock.sleep(7.0)
    assert recorder.trace() == Trace((Span("worker 3", "train", 3.0, 10.0, "epoch 1"),))


def test_spans_inside_spans_are_both_kept_the_inner_one_first():
    clock = FakeClock()
    recorder = Recorder(clock=clock)
    with recorder.span("train"):
        clock.sleep(1.0)
        with recorder.span("checkpoint"):
            clock.sleep(2.0)
        clock.sleep(4.0)
    assert recorder.trace().spans == (Span("main", "checkpoint", 1.0, 3.0), Span("main", "train", 0.0, 7.0))


def test_a_span_that_ends_with_an_error_is_kept():
    recorder = Recorder(clock=FakeClock())
    with pytest.raises(RuntimeError), recorder.span("train"):
        raise RuntimeError
    assert recorder.trace().parts() == ("train",)


def test_a_trace_does_not_grow_with_its_recorder():
    recorder = Recorder(clock=FakeClock())
    before = recorder.trace()
    with recorder.span("train"):
        pass
    assert before == Trace()


def test_without_a_clock_of_its_own_it_measures_real_time():
    recorder = Recorder()
    with recorder.span("wait"):
        sum(range(1000))
    assert 0 < recorder.trace().total_s("wait") < 10
