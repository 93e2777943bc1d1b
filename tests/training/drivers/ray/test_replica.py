"""A replica has the server's state at any time, whatever the strategy, and another server continues from it."""

from __future__ import annotations

import math
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import torch

from paceline.strategy.presets import PRESETS, find_strategy
from paceline.training.drivers.ray.follower_link import FollowerLink
from paceline.training.drivers.ray.messages import Call, WorkerReport
from paceline.training.drivers.ray.replica import ServerReplica
from tests.contract.small_training import workload
from tests.contract.test_conservation import strategy
from tests.training.drivers.ray.in_process import InProcessWorker, Place, job_of

MADE = {"batch": 16, "epochs": 2}


def remote(replica: ServerReplica) -> SimpleNamespace:
    """A handle as Ray's, whose calls are made at once."""
    return SimpleNamespace(begin=SimpleNamespace(remote=replica.begin), follow=SimpleNamespace(remote=replica.follow))


@pytest.fixture(autouse=True)
def confirmed(monkeypatch):
    monkeypatch.setattr(FollowerLink, "confirm", lambda link, sent: True)


def assert_same(found, expected):
    assert torch.equal(found.parameters, expected.parameters)
    assert found.saved["position"] == expected.saved["position"]
    assert (found.version, found.epochs_done) == (expected.version, expected.epochs_done)
    assert found.saved["worker_scores"] == expected.saved["worker_scores"]
    for mine, its in zip(_tensors(found.saved), _tensors(expected.saved), strict=True):
        assert torch.equal(mine, its)


def _tensors(saved):
    return [*saved["state"].values(), *(tensor for group in saved["corrections"] for tensor in group.values())]


@pytest.mark.parametrize("name", PRESETS)
def test_a_replica_ends_with_the_state_of_its_server(name):
    job, state = job_of(workload(**MADE), strategy(name), 2)
    place, replica = Place(job), ServerReplica(job)
    place.server.begin(state, math.inf)
    place.server.replicate(remote(replica))
    with ThreadPoolExecutor(2) as threads:
        for worker in [threads.submit(InProcessWorker(job, w).work, place, 1, None) for w in range(2)]:
            worker.result(60)
    assert place.server.status(0.0, 0).finished
    for epoch in range(2):
        place.server.epoch_parameters(epoch)
    assert replica.snapshot().version > 0 and set(replica.serving.epochs) == {1}
    assert_same(replica.snapshot(), place.server.snapshot())


@pytest.mark.parametrize("name", ["sync", "downpour", "mixed", "easgd"])
def test_one_that_comes_later_makes_the_workers_join_again_and_then_has_the_same_state(name):
    job, state = job_of(workload(**MADE), strategy(name), 2)
    place, replica = Place(job), ServerReplica(job)
    place.server.begin(state, math.inf)
    with ThreadPoolExecutor(2) as threads:
        working = [threads.submit(InProcessWorker(job, w).work, place, 1, None) for w in range(2)]
        while place.server.status(0.0, 0).version < 5:
            time.sleep(0.001)
        place.server.replicate(remote(replica))
        assert replica.snapshot().version >= 5
        for worker in working:
            worker.result(60)
    status = place.server.status(0.0, 0)
    assert status.finished and status.replicated and status.ledger.applied_by_epoch == (90, 90)
    for epoch in range(2):
        place.server.epoch_parameters(epoch)
    assert_same(replica.snapshot(), place.server.snapshot())


def test_it_follows_deaths_and_workers_that_begin_before_the_others():
    job, state = job_of(workload(**MADE), find_strategy("sync"), 2)
    place, replica = Place(job), ServerReplica(job)
    place.server.begin(state, 0.0)
    place.server.replicate(remote(replica))
    first, *_ = place.server.exchange(Call(0, 1, "", WorkerReport()))
    assert first.task is not None and replica.serving.mailboxes[0].computing
    place.server.died(0, 1)
    assert not replica.serving.mailboxes[0].computing
    assert_same(replica.snapshot(), place.server.snapshot())


def test_what_another_server_says_is_ignored():
    job, state = job_of(workload(**MADE), find_strategy("downpour"), 2)
    replica = ServerReplica(job)
    replica.begin("new", state)
    replica.follow("old", 0, [("died", (0,))])
    assert replica.serving.awaited == {0, 1}
    replica.follow("new", 0, [("died", (0,))])
    assert replica.serving.awaited == {1}


def test_events_that_overtake_others_wait_for_them():
    job, state = job_of(workload(**MADE), find_strategy("downpour"), 2)
    replica = ServerReplica(job)
    replica.begin("new", state)
    replica.follow("new", 1, [("died", (1,))])
    assert replica.serving.awaited == {0, 1}
    replica.follow("new", 0, [("died", (0,))])
    assert replica.serving.awaited == set()
