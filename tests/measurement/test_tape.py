"""A tape is a partition: with a clock that is told what to say, every number is exact."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from paceline.measurement.tape import Tape, around

A, B, OTHER = ("forward", "a"), ("backward", "b"), ("other", "")


def clock_of(*readings: int) -> Callable[[], int]:
    """A clock with these readings, in microseconds, one after another."""
    return iter([reading * 1000 for reading in readings]).__next__


@pytest.fixture
def tape() -> Tape:
    """10 µs of a, 20 of b, 5 of a again; the marks take 1, 2, 3 and 4."""
    tape = Tape(clock_of(0, 1, 11, 13, 33, 36, 41, 45))
    for kind, owner in (("edge", A), ("node", B), ("module", A), ("edge", OTHER)):
        tape.mark(kind, owner)
    return tape


def test_each_owner_has_what_lies_between_its_marks(tape):
    assert tape.durations_s({}) == pytest.approx({A: 15e-6, B: 20e-6}, abs=1e-12)


def test_the_owners_and_the_clocks_own_time_are_the_wall_clock(tape):
    assert tape.wall_s() == pytest.approx(40e-6, abs=1e-12)
    assert tape.own_s() == pytest.approx(5e-6, abs=1e-12)
    assert sum(tape.durations_s({}).values()) + tape.own_s() == pytest.approx(tape.wall_s(), abs=1e-12)


def test_half_of_a_marks_cost_is_taken_off_on_each_side(tape):
    costs = {"node": 2e-6, "module": 4e-6}
    assert tape.durations_s(costs) == pytest.approx({A: (10 - 1 + 5 - 2) * 1e-6, B: (20 - 1 - 2) * 1e-6}, abs=1e-12)


def test_a_mark_can_have_begun_before(tape):
    tape = Tape(clock_of(0, 1, 30, 31, 32))
    tape.mark("edge", A)
    tape.mark_since("walk", B, 11_000)
    tape.mark("edge", OTHER)
    assert tape.durations_s({}) == pytest.approx({A: 10e-6, B: 1e-6}, abs=1e-12)
    assert tape.own_s() == pytest.approx(19e-6, abs=1e-12)


def test_the_current_owner_is_that_of_the_last_mark(tape):
    assert tape.current == OTHER
    assert Tape().current == OTHER


class Worker:
    def work(self, wrong: bool = False) -> str:
        if wrong:
            raise KeyError("wrong")
        return "done"


def test_marks_around_a_method_come_and_go():
    tape, worker = Tape(), Worker()
    undo = around(worker, "work", tape, A, OTHER)
    assert worker.work() == "done"
    assert [mark[1] for mark in tape.marks] == [A, OTHER]
    undo()
    assert vars(worker) == {}
    assert worker.work() == "done" and len(tape.marks) == 2


def test_marks_around_a_method_that_raises():
    tape, worker = Tape(), Worker()
    around(worker, "work", tape, A, OTHER)
    with pytest.raises(KeyError):
        worker.work(wrong=True)
    assert tape.current == OTHER


def test_a_method_that_was_replaced_on_the_object_is_put_back():
    worker = Worker()
    worker.work = replaced = lambda: "replaced"
    around(worker, "work", Tape(), A, OTHER)()
    assert worker.work is replaced
