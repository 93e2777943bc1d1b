"""A mark log partitions an iteration: with a fake clock every number is exact."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from paceline.measurement.mark_log import MarkLog, mark_around

A, B, OTHER = ("forward", "a"), ("backward", "b"), ("loop", "")


def clock_of(*readings: int) -> Callable[[], int]:
    """A clock that returns these readings, in microseconds, one after another."""
    return iter([reading * 1000 for reading in readings]).__next__


@pytest.fixture
def log() -> MarkLog:
    """10 µs of a, 20 of b, 5 of a again; the marks take 1, 2, 3 and 4."""
    log = MarkLog(clock_of(0, 1, 11, 13, 33, 36, 41, 45))
    for kind, key in (("edge", A), ("node", B), ("module", A), ("edge", OTHER)):
        log.mark(kind, key)
    return log


def test_each_key_has_the_time_between_its_marks(log):
    assert log.durations_s({}) == pytest.approx({A: 15e-6, B: 20e-6}, abs=1e-12)


def test_spans_and_overhead_add_up_to_the_wall_clock(log):
    assert log.wall_s() == pytest.approx(40e-6, abs=1e-12)
    assert log.overhead_s() == pytest.approx(5e-6, abs=1e-12)
    assert sum(log.durations_s({}).values()) + log.overhead_s() == pytest.approx(log.wall_s(), abs=1e-12)


def test_half_of_the_cost_of_a_mark_is_subtracted_on_each_side(log):
    costs = {"node": 2e-6, "module": 4e-6}
    assert log.durations_s(costs) == pytest.approx({A: (10 - 1 + 5 - 2) * 1e-6, B: (20 - 1 - 2) * 1e-6}, abs=1e-12)


def test_a_mark_can_begin_earlier(log):
    log = MarkLog(clock_of(0, 1, 30, 31, 32))
    log.mark("edge", A)
    log.mark_since("walk", B, 11_000)
    log.mark("edge", OTHER)
    assert log.durations_s({}) == pytest.approx({A: 10e-6, B: 1e-6}, abs=1e-12)
    assert log.overhead_s() == pytest.approx(19e-6, abs=1e-12)


def test_the_current_key_is_that_of_the_last_mark(log):
    assert log.current == OTHER
    assert MarkLog().current == OTHER


class Worker:
    def work(self, wrong: bool = False) -> str:
        if wrong:
            raise KeyError("wrong")
        return "done"


def test_marks_around_a_method_can_be_removed():
    log, worker = MarkLog(), Worker()
    undo = mark_around(worker, "work", log, A, OTHER)
    assert worker.work() == "done"
    assert [mark[1] for mark in log.marks] == [A, OTHER]
    undo()
    assert vars(worker) == {}
    assert worker.work() == "done" and len(log.marks) == 2


def test_marks_around_a_method_that_raises():
    log, worker = MarkLog(), Worker()
    mark_around(worker, "work", log, A, OTHER)
    with pytest.raises(KeyError):
        worker.work(wrong=True)
    assert log.current == OTHER


def test_a_method_replaced_on_the_object_is_restored():
    worker = Worker()
    worker.work = replaced = lambda: "replaced"
    mark_around(worker, "work", MarkLog(), A, OTHER)()
    assert worker.work is replaced
