"""The server's side of sums that members make: a sum counts for all of its tasks or for none, also after its death."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from paceline.strategy.group import Group
from paceline.strategy.instructions import Compute
from paceline.strategy.strategy import preset
from paceline.train.local import mailbox
from paceline.train.local.memory import Memory
from paceline.train.local.preparation import sizes_of
from paceline.train.local.sums import Sums, with_numbers
from paceline.train.local.words import LINE, SLOT_WORDS, Control, Of, Payload
from tests.strategy.flat_vectors import layout


class Stage:
    """Two groups of two, of which the first is looked at; every worker does what it is told to."""

    def __init__(self) -> None:
        strategy = preset("mixed")
        self.memory = Memory(sizes_of(strategy, layout(5), 4, record_events=False))
        self.settings = SimpleNamespace(strategy=strategy, workers=4)
        self.sums = Sums(self.memory, self.settings)
        self.group = Group(0, workers=[0, 1], members=[0, 1])
        self.lives = [1, 1, 1, 1]
        for worker in range(4):
            self.word(worker, Of.JOINED, 1)

    def word(self, worker: int, which: int, value: int | None = None) -> int:
        if value is not None:
            self.memory.slots[worker * SLOT_WORDS + which] = value
        return self.memory.slots[worker * SLOT_WORDS + which]

    def round(self, sequence: int, *, given: tuple[int, ...] = (0, 1)) -> None:
        self.group.open = {(0, sequence), (1, sequence)}
        for worker in given:
            self.give(worker, sequence)

    def give(self, worker: int, sequence: int) -> None:
        task = Compute(worker, sequence, 0, (worker,), (0,), 0)
        self.sums.give(task, self.group, self.lives)
        mailbox.give(self.memory, task, self.lives[worker], 0)

    def hand_over(self, worker: int, sequence: int, summed: int) -> None:
        line = Of.PAYLOAD + sequence % 2 * LINE
        self.word(worker, line + Payload.SUMMED, summed)
        self.word(worker, line + Payload.READY, sequence)

    def settle(self, worker: int, sequence: int, summed: int):
        self.hand_over(worker, sequence, summed)
        return self.sums.settle(worker, sequence)

    def successor(self) -> Sums:
        found = Sums(self.memory, self.settings)
        found.look_around()
        return found

    @property
    def given_up(self) -> int:
        return self.memory.given_up[0]


@pytest.fixture
def stage():
    made = Stage()
    yield made
    made.memory.close()


def test_members_are_together_until_one_of_them_is_another(stage):
    told = []
    for sequence in (1, 2, 3):
        if sequence == 3:
            stage.lives[1] = 2
        stage.round(sequence)
        told.append([(stage.word(w, Of.SUM), stage.word(w, Of.TOGETHER_SINCE)) for w in (0, 1)])
        for worker in (0, 1):
            stage.settle(worker, sequence, stage.word(worker, Of.SUM))
    assert told == [[(1, 1)] * 2, [(2, 1)] * 2, [(3, 3)] * 2]
    assert stage.memory.control[Control.SUMS_MADE] == 3


def test_a_sum_counts_when_all_of_it_is_there(stage):
    stage.round(1)
    assert stage.settle(1, 1, 1) == ([], [])
    assert stage.settle(0, 1, 1) == ([(0, 1), (1, 1)], [])
    assert with_numbers(stage.memory, ((1, 1), (0, 1))) == ((0, 1),)


def test_who_hands_over_by_itself_ends_the_sum_and_the_rest_of_the_round_has_none(stage):
    stage.round(1)
    stage.settle(0, 1, 1)
    assert stage.settle(1, 1, 0) == ([(1, 1)], [(0, 1)])
    assert stage.given_up == 1
    stage.group.open = {(0, 2)}
    stage.group.arrived = [object()]
    stage.give(0, 2)
    assert stage.word(0, Of.SUM) == 0
    assert stage.settle(0, 2, 0) == ([(0, 2)], [])
    assert with_numbers(stage.memory, ((0, 2), (1, 1))) == ((0, 2), (1, 1))
    stage.group.arrived = []
    stage.round(3)
    assert [stage.word(w, Of.TOGETHER_SINCE) for w in (0, 1)] == [2, 2], "they find each other anew"


def test_who_had_the_sum_when_another_died_computes_again(stage):
    stage.round(1)
    assert stage.sums.give_up(1) == []
    assert stage.settle(0, 1, 1) == ([], [(0, 1)])


def test_a_part_for_who_replaces_another_is_in_no_sum(stage):
    stage.round(1)
    stage.sums.give_up(1)
    stage.group.open = {(0, 1), (1, 2)}
    stage.give(1, 2)
    assert stage.word(1, Of.SUM) == 0


def test_a_round_with_too_few_parts_is_in_no_sum(stage):
    stage.group.open = {(0, 1)}
    stage.give(0, 1)
    assert (stage.word(0, Of.SUM), stage.memory.control[Control.SUMS]) == (0, 0)


def test_a_successor_goes_on_with_a_sum_that_may_still_come_about(stage):
    stage.round(1)
    stage.hand_over(0, 1, 1)
    found = stage.successor()
    assert not found.is_lost(0, 1)
    assert found.settle(0, 1) == ([], [])
    stage.hand_over(1, 1, 1)
    assert found.settle(1, 1) == ([(0, 1), (1, 1)], [])


def test_a_sum_that_is_made_counts_though_a_member_died_since(stage):
    stage.round(1)
    for worker in (0, 1):
        stage.hand_over(worker, 1, 1)
    stage.word(1, Of.DEAD, 1)
    found = stage.successor()
    assert not found.is_lost(0, 1)
    assert found.settle(0, 1) == ([], [])
    assert found.settle(1, 1) == ([(0, 1), (1, 1)], [])


@pytest.mark.parametrize("why", ["died", "by itself", "not given", "given up"])
def test_a_successor_gives_up_a_sum_that_cannot_come_about(stage, why):
    stage.round(1, given=(0,) if why == "not given" else (0, 1))
    stage.hand_over(0, 1, 1)
    if why == "died":
        stage.word(1, Of.DEAD, 1)
    elif why == "by itself":
        stage.hand_over(1, 1, 0)
    elif why == "given up":
        stage.sums.give_up(1)
    found = stage.successor()
    assert found.is_lost(0, 1)
    assert not found.is_lost(1, 1)
    assert stage.given_up == 1


def test_a_sum_that_became_an_update_is_over_for_a_successor(stage):
    stage.round(1)
    for worker in (0, 1):
        stage.settle(worker, 1, 1)
    found = stage.successor()
    found.keep_only({})
    assert found.open == {}
