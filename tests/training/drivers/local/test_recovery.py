"""What a server's successor finds in shared memory is all it needs. The workers here are words that a test writes."""

from __future__ import annotations

import random

import pytest
import torch

from paceline.strategy.presets import find_strategy
from paceline.strategy.strategy import Strategy
from paceline.training.drivers.local.fields import LINE, ControlField, PayloadField, SlotField

BY_SERVER = {"correction": f"{__name__}:unchanged"}
"""So that the server makes the updates."""


def unchanged(gradient, late):
    return gradient


def test_an_idle_worker_keeps_its_own_parameters_through_the_server_s_death(stage):
    """Worker 1 has done the second epoch and waits for the first to end when the server dies."""
    s = stage(Strategy("easgd", groups=None, exchange="elastic:0.9", fetch_every=0, push_every=2, **BY_SERVER), 2, 2, 4)
    s.join(0, 1)
    s.poll()
    assert [s.task(w).fetches for w in (0, 1)] == [(0,), (0,)], "who joins fetches"
    s.step(1)
    s.poll()
    assert s.task(1) is None
    s.start_server()
    s.step(0)
    s.poll()
    assert {s.task(0).epoch, s.task(1).epoch} == {2, 3}
    assert [s.task(w).fetches for w in (0, 1)] == [(), ()], "it would be drawn to the centre at once"


def test_a_worker_that_died_with_the_server_begins_anew(stage):
    s = stage(Strategy("easgd", groups=None, exchange="elastic:0.9", fetch_every=0, push_every=2, **BY_SERVER), 2, 2, 4)
    s.join(0, 1)
    s.poll()
    s.step(1)
    s.poll()
    s.kill(1)
    s.start_server()
    s.join(1)
    s.poll()
    s.step(0)
    s.poll()
    assert s.task(1).fetches == (0,)


def test_a_worker_replaced_while_the_server_handled_its_payload_is_given_tasks(stage, monkeypatch):
    """Its death and its successor's start happen between two reads of the same poll."""
    s = stage(Strategy("downpour", groups=None, **BY_SERVER), 2, 6, 1)
    s.join(0, 1)
    s.poll()
    s.step(1)
    handle, lost = s.server.take_payload, []

    def replaced_meanwhile(worker, sequence):
        handle(worker, sequence)
        if worker == 1 and not lost:
            lost.append(s.task(1))
            s.kill(1)
            s.join(1)

    monkeypatch.setattr(s.server, "take_payload", replaced_meanwhile)
    s.poll()
    assert lost[0] is not None and s.task(1) is not None, "the successor has something to do"
    assert s.task(1).batches == lost[0].batches, "what the dead one had in hand is done by another"
    s.finish()


@pytest.mark.parametrize("dies", ["before the round", "with its part in hand", "with its payload ready"])
def test_a_synchronous_round_has_all_its_parts_though_worker_and_server_died(stage, dies):
    s = stage(Strategy("sync", **BY_SERVER), 3, 12, 1)
    s.join(0, 1, 2)
    s.poll()
    if dies == "before the round":
        for worker in range(3):
            s.step(worker)
        s.kill(2)
        s.poll()
        s.step(0)
        s.poll()
        first = 3
    else:
        s.step(0)
        if dies == "with its payload ready":
            s.step(2)
        s.poll()
        s.kill(2)
        first = 0
    version = s.version
    s.start_server()
    while s.version == version:
        busy = next(worker for worker in (1, 0) if s.may(worker))
        s.step(busy)
        s.poll()
    assert s.version == version + 1
    assert s.closed(0) == list(range(first + 3))


# Anything in any order

KINDS = {
    "downpour": (find_strategy("downpour"), 2),
    "delay-compensated": (find_strategy("delay-compensated"), 3),
    "sync": (find_strategy("sync"), 2),
    "mixed": (find_strategy("mixed"), 4),
    "local-sgd": (find_strategy("local-sgd", fetch_every=3, push_every=3), 2),
    "softsync": (find_strategy("softsync"), 3),
    "stale-sync": (find_strategy("stale-sync"), 3),
    "backup": (find_strategy("backup"), 3),
    "easgd": (find_strategy("easgd", push_every=3), 2),
    "sync by the server": (Strategy("sync", **BY_SERVER), 3),
    "overlap by the server": (find_strategy("downpour", **BY_SERVER), 2),
}


def run_in_any_order(s, dice: random.Random, bad: float) -> None:
    """Steps, looks of the server, deaths of workers and server."""
    s.join(*range(s.workers))
    for _ in range(5000):
        if s.server.coordinator.finished:
            return
        event, worker = dice.random(), dice.randrange(s.workers)
        if event < 0.7:
            s.step(worker, finite=dice.random() >= bad)
        elif event < 0.95:
            s.poll()
        elif event < 0.975:
            s.start_server()
        elif s.is_alive(worker):
            s.kill(worker)
            if dice.random() < 0.5:
                s.poll()
            s.join(worker)
    pytest.fail("the run does not end")


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("seed", range(6))
def test_every_batch_counts_once_whoever_dies_when(stage, name, seed):
    strategy, workers = KINDS[name]
    s = stage(strategy, workers, 13, 3)
    run_in_any_order(s, random.Random(seed), 0.0)
    s.assert_every_batch_counts_once()
    _, dropped, refused = s.memory.totals.sum(axis=0).tolist()
    assert refused == 0 and (dropped > 0) <= (name == "backup")
    assert s.memory.control[ControlField.RETURNED] == s.server.coordinator.ledger.returned
    if strategy.is_synchronous:
        whole = stage(strategy, workers, 13, 3)
        whole.join(*range(workers))
        whole.poll()
        whole.finish()
        assert torch.equal(s.parameters, whole.parameters), "a synchronous run ends with the same bits"


@pytest.mark.parametrize("name", [name for name in KINDS if KINDS[name][0].groups is None])
@pytest.mark.parametrize("seed", range(3))
def test_so_it_does_with_payloads_that_are_not_finite(stage, name, seed):
    strategy, workers = KINDS[name]
    s = stage(strategy, workers, 13, 3)
    run_in_any_order(s, random.Random(seed), 0.2)
    s.assert_every_batch_counts_once()
    assert s.memory.totals[:, 2].sum() >= 1
    assert s.parameters.isfinite().all()


def test_the_server_hears_of_updates_later_and_in_their_order(stage):
    s = stage(find_strategy("downpour"), 2, 8, 1)
    s.join(0, 1)
    s.poll()
    assert [s.word(worker, SlotField.GIVEN) for worker in (0, 1)] == [2, 2]
    assert [s.step(worker) for worker in (0, 1, 1, 0, 0)] == [True, True, True, True, False]
    assert s.version == 4 and s.server.coordinator.version == 0
    s.poll()
    assert s.server.coordinator.version == 4
    assert s.server.coordinator.ledger.staleness == {0: 4}
    s.finish()
    assert s.version == 8


def test_a_worker_does_a_dead_one_s_part_of_the_round_its_own_payload_waits_in(stage):
    """Without overlap it waits until its payload is applied; that would be for ever."""
    s = stage(Strategy("sync", **BY_SERVER), 2, 4, 1)
    s.join(0, 1)
    s.poll()
    assert s.step(1)
    s.poll()
    assert not s.may(1), "its next task is of the next round, or there is none"
    s.kill(0)
    s.poll()
    assert s.step(1)
    s.poll()
    assert s.version == 1 and s.closed(0) == [0, 1]


def test_many_refusals_in_a_row_bring_no_old_row_of_the_commit_log_back(stage):
    s = stage(find_strategy("downpour"), 2, 23, 2)
    s.join(0, 1)
    s.poll()
    assert s.step(0)
    for _ in range(s.memory.log_rows + 1):
        s.step(1, finite=False)
        s.poll()
    assert s.version == 1
    s.finish()
    s.assert_every_batch_counts_once()


# Means that the members of a group made among themselves


def deliver_part(s, worker, averaged):
    """The worker has averaged with the others of its group, and says so."""
    task = s.compute(worker)
    s.memory.slot(worker)[SlotField.PAYLOAD + task.sequence % 2 * LINE + PayloadField.AVERAGED] = averaged
    s.push(worker, task)


@pytest.mark.parametrize("delivered", [0, 1])
@pytest.mark.parametrize("server_dies", [False, True])
def test_a_mean_that_not_all_have_delivered_is_made_again_by_all(stage, delivered, server_dies):
    """Member 0 has the mean, the others say that they are part of it: one without the other is not to be used."""
    s = stage(find_strategy("sync"), 2, 8, 1, collective="gloo")
    assert not s.commits
    s.join(0, 1)
    s.poll()
    before = [s.task(worker).batches for worker in (0, 1)]
    deliver_part(s, delivered, averaged=-1 if delivered else 1)
    s.poll()
    if server_dies:
        s.start_server()
    s.kill(0), s.kill(1)  # the supervisor starts the group again when one of them dies
    s.poll()
    s.join(0, 1)
    s.poll()
    again = [s.task(worker) for worker in (0, 1)]
    assert sorted(task.batches for task in again) == sorted(before), "each has one part of the round"
    for worker in (1, 0):
        deliver_part(s, worker, averaged=-1 if worker else 1)
        s.done[worker] = again[worker].sequence
    s.poll()
    assert (s.version, s.counts(0)) == (1, (2, 0, 0))


def test_a_mean_whose_last_part_comes_after_the_server_s_death_is_used(stage):
    s = stage(find_strategy("sync"), 2, 8, 1, collective="gloo")
    s.join(0, 1)
    s.poll()
    deliver_part(s, 0, averaged=1)
    s.start_server()
    assert s.version == 0
    deliver_part(s, 1, averaged=-1)
    s.poll()
    assert (s.version, s.counts(0)) == (1, (2, 0, 0))
