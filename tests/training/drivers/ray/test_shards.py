"""Several shards of the server without Ray: the bits of one server, and what is left when some of them die."""

from __future__ import annotations

import contextlib
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from types import SimpleNamespace

import pytest
import torch

from paceline.errors import StrategyError
from paceline.simulation.replay import replay
from paceline.strategy.instructions import Compute
from paceline.strategy.presets import PRESETS, find_strategy
from paceline.training.drivers.ray import shard_link
from paceline.training.drivers.ray.follower_link import FollowerLink
from paceline.training.drivers.ray.mailbox import Fetched
from paceline.training.drivers.ray.messages import ServerState
from paceline.training.drivers.ray.server import Server
from paceline.training.drivers.ray.shard import ServerShard
from paceline.training.drivers.ray.sharding import choose_shards
from tests.contract.small_training import workload
from tests.contract.test_conservation import strategy
from tests.training.drivers.ray.in_process import InProcessWorker, Place, job_of, parts_of

BATCHES = 90
MADE = {"batch": 16, "epochs": 2}
CUT = [name for name in PRESETS if name not in ("compressed", "quantised", "deep-compression", "streaming-diloco")]
"""The payloads of the others are not cut into slices."""


@pytest.fixture(autouse=True)
def without_ray(monkeypatch):
    fake = SimpleNamespace(put=lambda array: array.copy(), get=lambda found, timeout=None: found)
    monkeypatch.setattr(shard_link, "ray", fake)
    monkeypatch.setattr(FollowerLink, "confirm", lambda link, sent: True)


@contextlib.contextmanager
def working(job, place):
    """All workers, until the end; if something fails they end, too."""
    with ThreadPoolExecutor(job.workers) as threads:
        begun = [threads.submit(InProcessWorker(job, w).work, place, 1, None) for w in range(job.workers)]
        try:
            yield
            for worker in as_completed(begun, 60):
                worker.result()
        except BaseException:
            end(place.server)
            raise


def end(server):
    """Whoever waits in it is answered."""
    with server.lock:
        server.failure = ("PacelineError", "it is gone")
        server._tell_all()


def trained(job, state) -> Place:
    place = Place(job)
    place.begin(state)
    with working(job, place):
        pass
    return place


@pytest.mark.parametrize("name", CUT)
def test_the_run_is_repeated_bitwise_by_one_process(name):
    made = workload(**MADE)
    job, state = job_of(made, strategy(name), 2, shards=3, record_events=True)
    place = trained(job, state)
    status = place.server.status(0.0, 0)
    assert status.finished and status.failure is None
    assert status.ledger.applied + status.ledger.dropped == 2 * BATCHES
    assert torch.equal(replay(parts_of(made), place.server.events()), place.parameters())
    for shards in place.shards:  # every shard has the server's ledger, and nothing is left over
        assert shards[0].serving.coordinator.ledger == place.server.serving.coordinator.ledger
        assert not shards[0].received


def test_synchronous_workers_end_with_the_bits_of_one_server():
    one, three = (
        trained(*job_of(workload(**MADE), find_strategy("sync"), 2, shards=shards)).parameters() for shards in (1, 3)
    )
    assert torch.equal(one, three)


def until(place, version):
    while place.server.status(0.0, 0).version < version:
        time.sleep(0.001)


def kept(place, number) -> ServerState:
    """One version of everything, from all shards."""
    found = place.server.snapshot(number)
    states = [shards[0].kept(shards[0].following.generation, number) for shards in place.shards]
    assert {state.version for state in states} == {found.version}
    return place.sharding.whole(states)


def kill_server(place):
    """There is another one, which has not begun."""
    dead, place.server = place.server, Server(place.sharding.of_server)
    end(dead)


def test_without_replicas_all_shards_and_the_ledger_go_back_to_the_last_checkpoint():
    job, state = job_of(workload(**MADE), find_strategy("sync"), 2, shards=2)
    whole, place = trained(job, state).parameters(), Place(job)
    place.begin(state)
    with working(job, place):
        until(place, 20)
        checkpoint = kept(place, 1)
        until(place, min(checkpoint.version + 10, BATCHES - 1))
        kill_server(place)
        place.shards[1][0] = ServerShard(place.sharding.of_shard(1))
        place.begin(checkpoint, "second")
    status = place.server.status(0.0, 0)
    assert status.finished and status.ledger.applied_by_epoch == (BATCHES, BATCHES)
    assert torch.equal(place.parameters(), whole)


def test_a_state_that_shards_find_together_has_all_that_one_of_them_has_heard_of():
    """When the server dies a shard dies with it, and the shard's replica has heard of less than the others."""
    job, state = job_of(workload(**MADE), find_strategy("sync"), 2, shards=2)
    whole, place = trained(job, state).parameters(), Place(job, copies=2)
    place.begin(state)
    (dying, behind), (other, _) = place.shards
    with working(job, place):
        until(place, 10)
        behind.is_sealed = True  # it hears no more
        heard = behind.following.count
        while other.following.count < heard + 10:
            time.sleep(0.001)
        kill_server(place)
        (_, reached), (count, events) = behind.seal("first"), other.seal("first")
        assert dying is not behind and len(reached) == heard <= count - 10
        states = [shard.catch_up("first", heard, events[heard:]) for shard in (behind, other)]
        newest = place.sharding.whole(states)
        assert newest.version == states[0].version == states[1].version >= 10
        place.shards[0][0] = ServerShard(place.sharding.of_shard(0))
        place.begin(newest, "second")
    assert place.server.status(0.0, 0).ledger.applied_by_epoch == (BATCHES, BATCHES)
    assert torch.equal(place.parameters(), whole)


def test_a_worker_is_told_to_join_again_by_a_shard_that_does_not_know_its_task():
    job, state = job_of(workload(**MADE), find_strategy("downpour"), 2, shards=2)
    place = Place(job)
    place.begin(state)
    shard = place.shards[0][0]
    assert shard.collect("of before", 0, 1, 0) == (False, None)
    assert shard.collect("first", 0, 1, 0) == (True, None), "it will hear of the task"
    with pytest.raises(LookupError, match="no state"):
        ServerShard(place.sharding.of_shard(0)).follow("first", 0, [])


def test_a_shard_gives_the_version_that_the_server_named_and_no_other():
    job, state = job_of(workload(**MADE), find_strategy("downpour"), 2, shards=2)
    place = Place(job)
    place.begin(state)
    shard = place.shards[0][0]
    mailbox = shard.serving.mailboxes[0]
    with shard.lock:
        mailbox.put(Compute(0, 1, 0, (0,), (0,)))
    mailbox.take()
    mailbox.held[1] = Fetched(3, torch.ones(2))
    assert shard.collect("first", 0, 1, 4) == (True, None)
    stands, piece = shard.collect("first", 0, 1, 3)
    assert stands and piece.tolist() == [1.0, 1.0]


def test_the_others_are_refused():
    job, _ = job_of(workload(**MADE), find_strategy("sync"), 2)
    for name in PRESETS:
        permitted = (
            contextlib.nullcontext() if name in CUT else pytest.raises(StrategyError, match=r"cannot be cut|in turns")
        )
        with permitted:
            assert choose_shards(2, strategy(name), job.layout, 3, "server", always=False) == 2
