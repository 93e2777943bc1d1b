"""Groups whose members average among themselves: the bits of the server's mean, whatever happens to a member."""

from __future__ import annotations

import math
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from paceline.simulation.replay import replay
from paceline.strategy.presets import find_strategy
from paceline.testing import Fault
from paceline.training.drivers.ray.follower_link import FollowerLink
from paceline.training.drivers.ray.member_link import Dissolved, MemberLink
from paceline.training.drivers.ray.replica import ServerReplica
from tests.contract.small_training import workload
from tests.contract.test_conservation import strategy
from tests.training.drivers.ray.in_process import InProcessWorker, Place, job_of, parts_of
from tests.training.drivers.ray.test_replica import assert_same, remote
from tests.training.drivers.ray.test_server_and_workers import BATCHES, MADE, trained

GLOO = {"collective": "gloo", "collective_always": True}


@pytest.fixture
def averages(monkeypatch):
    """What members have found: parts of means, or None."""
    found = []
    average = MemberLink.average

    def counted(self, *arguments):
        found.append(average(self, *arguments))
        return found[-1]

    monkeypatch.setattr(MemberLink, "average", counted)
    return found


def parameters(server):
    return torch.from_numpy(server.current_parameters()[1])


@pytest.mark.parametrize(("name", "workers"), [("sync", 2), ("sync", 3), ("mixed", 4), ("local-sgd", 2), ("diloco", 3)])
def test_members_find_the_bits_that_the_server_does(name, workers, averages):
    made = workload(**MADE)
    at_server, among_members = (
        trained(*job_of(made, strategy(name), workers, record_events=True, **how)) for how in ({}, GLOO)
    )
    assert len(averages) > BATCHES // 5 and all(part is not None for part in averages)
    status = among_members.status(0.0, 0)
    assert status.finished and status.ledger.applied_by_epoch == (BATCHES, BATCHES)
    assert torch.equal(replay(parts_of(made), among_members.events()), parameters(among_members))
    if name != "mixed":  # its two groups meet in another order every time
        assert torch.equal(parameters(at_server), parameters(among_members))
        assert status.ledger == at_server.status(0.0, 0).ledger


def test_buffers_are_averaged_too():
    made = workload("tests.training.drivers.local.small:with_batch_norm", options={}, dropout=None, **MADE)
    at_server, among_members = (trained(*job_of(made, find_strategy("sync"), 3, **how)) for how in ({}, GLOO))
    assert torch.equal(parameters(at_server), parameters(among_members))


class Died(Exception):
    pass


class Mortal(InProcessWorker):
    """Dies at its twentieth task: `when` it has its parameters, before it averages, or before it pushes."""

    when = ""

    def _die_at(self, when: str) -> None:
        if self.number == 1 and self.when == when and self.tasks >= 20:
            self.group = None  # as the system closes a dead process's connections
            raise Died

    def _receive_parameters(self, *arguments):
        self._die_at("before it has its parameters")
        return super()._receive_parameters(*arguments)

    def _average(self, *arguments):
        self._die_at("before it averages")
        found = super()._average(*arguments)
        self._die_at("before it pushes")
        return found


@pytest.mark.parametrize("when", ["before it has its parameters", "before it averages", "before it pushes"])
@pytest.mark.parametrize("workers", [2, 3])
def test_a_member_that_dies_is_replaced_and_the_bits_stay(when, workers, monkeypatch, averages):
    monkeypatch.setattr(Mortal, "when", when)
    made = workload(**MADE)
    whole = trained(*job_of(made, find_strategy("sync"), workers))
    job, state = job_of(made, find_strategy("sync"), workers, **GLOO)
    place = Place(job)
    place.server.begin(state, math.inf)
    with ThreadPoolExecutor(workers + 1) as threads:
        working = [threads.submit(Mortal(job, worker).work, place, 1, None) for worker in range(workers)]
        with pytest.raises(Died):
            working[1].result(60)
        place.server.died(1, 1)
        before = len(averages)
        working[1] = threads.submit(InProcessWorker(job, 1).work, place, 2, None)
        for worker in working:
            worker.result(60)
    status = place.server.status(0.0, 0)
    assert status.finished and status.ledger.applied_by_epoch == (BATCHES, BATCHES)
    assert status.ledger.returned == 1
    assert torch.equal(parameters(whole), parameters(place.server))
    assert len(averages) > before + BATCHES // 2, "the members formed a group again"


def test_members_that_lose_each_other_push_whole_payloads_and_meet_again(monkeypatch, averages):
    """As when a connection breaks: one of them has its part of the mean already, and pushed it."""
    average, lost = MemberLink.average, threading.Event()

    def lose(self, payload, task, *arguments):
        found = average(self, payload, task, *arguments)
        if task.sequence == 20 and self.formation.rank == 1 and not lost.is_set():
            lost.set()
            raise Dissolved
        return found

    monkeypatch.setattr(MemberLink, "average", lose)
    made = workload(**MADE)
    whole, found = (trained(*job_of(made, find_strategy("sync"), 3, **how)) for how in ({}, GLOO))
    assert lost.is_set() and found.serving.formations.formed == 2
    assert found.status(0.0, 0).ledger == whole.status(0.0, 0).ledger
    assert torch.equal(parameters(whole), parameters(found))


def test_a_payload_that_is_not_finite_is_refused_by_name(averages):
    spoilt = (Fault("corrupt", at=5, worker=1),)
    job, state = job_of(workload(**MADE), find_strategy("sync"), 2, faults=spoilt, on_bad_gradient="skip", **GLOO)
    server = trained(job, state)
    status = server.status(0.0, 0)
    assert [(fault.what, fault.worker) for fault in status.refusals] == [("refused", 1)]
    assert status.ledger.refused == 1 and parameters(server).isfinite().all()
    assert averages.count(None) == 2, "neither found a mean"


def test_a_replica_that_comes_later_follows_means_as_well(monkeypatch, averages):
    monkeypatch.setattr(FollowerLink, "confirm", lambda link, sent: True)
    job, state = job_of(workload(**MADE), find_strategy("sync"), 2, **GLOO)
    place, replica = Place(job), ServerReplica(job)
    place.server.begin(state, math.inf)
    with ThreadPoolExecutor(2) as threads:
        working = [threads.submit(InProcessWorker(job, w).work, place, 1, None) for w in range(2)]
        while place.server.status(0.0, 0).version < 5:
            time.sleep(0.001)
        place.server.replicate(remote(replica))
        before = len(averages)
        for worker in working:
            worker.result(60)
    assert place.server.status(0.0, 0).ledger.applied_by_epoch == (BATCHES, BATCHES)
    assert_same(replica.snapshot(), place.server.snapshot())
    assert len(averages) > before + BATCHES // 2


def test_members_are_waited_for_only_where_it_is_worth_their_while(averages):
    job, state = job_of(workload(**MADE), find_strategy("sync"), 2, collective="gloo")
    assert trained(job, state).status(0.0, 0).finished
    assert not averages, "a small payload reaches the server sooner"
