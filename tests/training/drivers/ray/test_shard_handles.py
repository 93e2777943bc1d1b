"""What the launching process makes of shards that die, without Ray."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from paceline.errors import PacelineError
from paceline.training.drivers.ray.connection import Shares
from paceline.training.drivers.ray.messages import ServerState
from paceline.training.drivers.ray.shard import ServerShard
from paceline.training.drivers.ray.shard_handles import ShardHandles
from paceline.training.drivers.ray.sharding import Sharding
from paceline.training.drivers.ray.supervisor import MOST_FAILURES, Supervisor
from paceline.training.settings import DriverSettings
from tests.training.drivers.ray.fake_ray import NEVER, ActorUnavailableError, FakeRay
from tests.training.drivers.ray.test_sharding import job_of, layout
from tests.training.drivers.ray.test_supervisor import WORKING

JOB = job_of(layout(1000), 2)
LAST = ServerState(torch.arange(1000.0), version=4)


def slices(version: int) -> list[ServerState]:
    return Sharding(JOB).states_of_shards(replace(LAST, version=version))


class Shards:
    """Two shards that have begun, each with a replica."""

    def __init__(self) -> None:
        self.ray = FakeRay()
        limits = DriverSettings(server_replica=True)
        self.handles = ShardHandles(self.ray, JOB, Sharding(JOB), limits, lambda: None)
        for actor in self.ray.actors:
            actor.answers["begin"] = None
        self.handles.begin(LAST)

    def newest(self, *heard) -> ServerState:
        """Of each actor: what it has heard of, or an error."""
        for number, (actor, answer) in enumerate(zip(self.ray.actors, heard, strict=True)):
            actor.answers |= {"seal": answer, "catch_up": slices(9)[number // 2]}
        return self.handles.newest(LAST)


def test_shards_and_replicas_begin_with_their_slice_on_one_node_after_another():
    shards = Shards()
    assert [actor.kind for actor in shards.ray.actors] == [ServerShard] * 4
    nodes = [actor.options["scheduling_strategy"].node_id[-1] for actor in shards.ray.actors]
    assert nodes == ["0", "1", "1", "0"]
    begun = [actor.called("begin")[0][1].answer.parameters for actor in shards.ray.actors]
    assert all(torch.equal(begun[number], slices(4)[number // 2].parameters) for number in range(4))


def test_the_newest_state_is_what_the_one_that_heard_most_has():
    """The others are told the rest; a replica stands in for its shard."""
    shards = Shards()
    events = [("died", (0,)), ("died", (1,))]
    found = shards.newest(ActorUnavailableError(), (6, events[:1]), (7, events), (7, events))
    assert found.version == 9 and torch.equal(found.parameters, LAST.parameters)
    _, behind, ahead, _ = shards.ray.actors
    generation = shards.handles.generation
    assert behind.called("catch_up") == [(generation, 6, events[1:])]
    assert ahead.called("catch_up") == [(generation, 7, [])]


@pytest.mark.parametrize(
    "heard",
    [
        (ActorUnavailableError(), None, (7, []), (7, [])),
        ((3, []), (3, []), (7, [("died", (0,))] * 3), (7, [])),
    ],
)
def test_without_some_slice_or_the_events_it_lacks_the_last_checkpoint_is_left(heard):
    assert Shards().newest(*heard) is LAST


def test_a_shard_that_hangs_is_started_again():
    shards = Shards()
    shards.newest(NEVER, (7, []), (7, []), (7, []))
    assert shards.ray.killed == [shards.ray.actors[0]]


def test_shards_that_do_not_start_are_one_line(monkeypatch):
    handles = ShardHandles(FakeRay(), JOB, Sharding(JOB), DriverSettings(start_timeout=0.05), lambda: None)
    with pytest.raises(PacelineError, match=r"shards did not start within 0\.05 s \(start_timeout\)"):
        handles.begin(LAST)


def test_a_lost_shard_takes_the_server_along_and_all_begin_from_the_last_checkpoint():
    ray, restored = FakeRay(), []
    supervisor = Supervisor(ray, JOB, None, Shares(1.0, 0.0), DriverSettings(), restored.append, lambda: None)
    server, *shards = ray.actors[:3]
    for shard in shards:
        shard.answers |= {"begin": None, "seal": None}
    server.answers = {"begin": lambda *_: f"after {len(ray.killed)}", "status": WORKING}
    supervisor.start(LAST)
    supervisor.poll(0.0)
    server.answers["status"] = replace(WORKING, lost_shard=True)
    supervisor.poll(0.0)
    assert ray.killed == [server] and [state.version for state in restored] == [4]
    assert [(fault.what, fault.note) for fault in supervisor.faults] == [("shard died", "continued from update 4")]
    generations = [[generation for generation, _ in shard.called("begin")] for shard in shards]
    assert generations[0] == generations[1] and len(set(generations[0])) == 2
    assert [followed[3] for followed in server.called("begin")] == generations[0]
    with pytest.raises(PacelineError, match=f"died {MOST_FAILURES} times in a row"):
        for _ in range(2 * MOST_FAILURES):
            supervisor.poll(0.0)
