"""What the launching process makes of actors that die, or that it cannot reach, without Ray."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from paceline.errors import PacelineError
from paceline.training.drivers.ray.connection import Shares
from paceline.training.drivers.ray.messages import ServerState, Status, WorkerReport
from paceline.training.drivers.ray.start_limits import ROOM_EVERY_S
from paceline.training.drivers.ray.supervisor import RETRY_S, Supervisor
from paceline.training.settings import DriverSettings
from tests.training.drivers.ray.fake_ray import ActorUnavailableError, FakeRay, Reference

WORKING = Status("", begun=True, began_ago_s=1.0, alive=2, version=5, by_worker=(WorkerReport(tasks=3),) * 2)


class Started:
    """A run of two workers whose server has begun."""

    def __init__(self) -> None:
        self.ray, self.restored = FakeRay(), list[ServerState]()
        job = SimpleNamespace(groups=1, workers=2, server_threads=1, shards=1, faults=())
        self.supervisor = Supervisor(
            self.ray, job, None, Shares(1.0, 0.0), DriverSettings(), self.restored.append, lambda: None
        )
        self.server, *self.workers = self.ray.actors
        self.server.answers = {"begin": "first", "status": WORKING}
        self.supervisor.start(ServerState(torch.zeros(1), version=4))

    def poll(self) -> Status:
        return self.supervisor.poll(0.0)


def test_the_server_is_told_of_a_death_until_it_has_answered():
    run = Started()
    run.poll()
    run.supervisor.workers[1].working = Reference(ActorUnavailableError())
    run.poll()
    assert run.supervisor.workers[1].incarnation == 2 and len(run.workers[1].called("work")) == 2
    run.poll()  # the answer to what was asked before
    run.server.answers["status"] = ActorUnavailableError()
    run.poll()
    run.server.answers["status"] = WORKING
    run.poll()
    run.poll()
    told = [dead for _, _, dead in run.server.called("status")]
    assert told[-3:] == [((1, 1),), ((1, 1),), ()]
    assert [(fault.what, fault.worker) for fault in run.supervisor.faults] == [("died", 1)]


def test_a_worker_that_has_no_room_is_told_again_but_dies_once(monkeypatch):
    run = Started()
    run.server.answers["status"] = replace(WORKING, joined=(1, 1))
    run.poll()
    worker, now_s = run.supervisor.workers[1], run.supervisor.began_s + 10.0
    monkeypatch.setattr("paceline.training.drivers.ray.supervisor.time.monotonic", lambda: now_s)
    worker.working = Reference(ActorUnavailableError())
    run.poll()
    for _ in range(3):  # its node is gone, and there is no other
        worker.working = Reference(ActorUnavailableError())
        run.poll()
        run.poll()
        assert worker.working is None
        now_s += RETRY_S
        run.poll()
        assert worker.working is not None
    assert worker.starts == 2 and worker.incarnation == 5 and run.supervisor.fault_count == 1
    run.server.answers["status"] = replace(WORKING, joined=(1, 5))
    run.poll()
    run.poll()
    worker.working = Reference(ActorUnavailableError())
    run.poll()
    assert worker.starts == 3 and run.supervisor.fault_count == 2, "it was there, and died again"


def test_a_server_that_could_not_be_reached_for_a_while_goes_on_as_it_is():
    run = Started()
    run.poll()
    run.server.answers["status"] = ActorUnavailableError()
    run.poll()
    assert not run.restored and not run.supervisor.faults


def test_a_server_that_died_continues_from_the_last_checkpoint():
    run = Started()
    run.poll()
    run.server.answers |= {"status": ActorUnavailableError(), "begin": "second"}
    run.poll()
    assert [state.version for state in run.restored] == [4]
    (fault,) = run.supervisor.faults
    assert (fault.what, fault.note) == ("server died", "continued from update 4")


def test_workers_without_room_are_noticed_while_they_start(monkeypatch):
    run = Started()
    run.server.answers["status"] = Status("", begun=True)
    run.poll()
    run.ray.alive = [False, False]
    now_s = run.supervisor.began_s + ROOM_EVERY_S
    monkeypatch.setattr("paceline.training.drivers.ray.supervisor.time.monotonic", lambda: now_s)
    with pytest.raises(PacelineError, match="2 workers with 1 CPU each do not fit"):
        run.poll()


def test_all_actors_end_with_the_run():
    run = Started()
    run.supervisor.stop()
    assert {id(actor) for actor in run.ray.killed} == {id(actor) for actor in run.ray.actors}
