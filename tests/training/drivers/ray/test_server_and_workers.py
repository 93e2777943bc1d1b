"""The server and its workers without Ray: tasks, payloads, deaths, a server that goes back to a checkpoint."""

from __future__ import annotations

import math
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from paceline.record import from_json
from paceline.simulation.replay import replay
from paceline.strategy.position import Position
from paceline.strategy.presets import PRESETS, find_strategy
from paceline.testing import Fault
from paceline.training.drivers.ray.messages import Call, WorkerReport
from paceline.training.drivers.ray.server import Server
from tests.contract.small_training import workload
from tests.contract.test_conservation import strategy
from tests.training.drivers.ray.in_process import InProcessWorker, Place, job_of, parts_of

BATCHES = -(-1437 // 16)
MADE = {"batch": 16, "epochs": 2}


def trained(job, state):
    """All workers until the end; the server."""
    place = Place(job)
    place.server.begin(state, math.inf)
    with ThreadPoolExecutor(job.workers) as threads:
        for worker in [threads.submit(InProcessWorker(job, w).work, place, 1, None) for w in range(job.workers)]:
            worker.result(60)
    return place.server


@pytest.mark.parametrize("name", PRESETS)
def test_every_batch_is_applied_once_and_the_run_is_repeated_bitwise(name):
    made = workload(**MADE)
    job, state = job_of(made, strategy(name), 2, record_events=True)
    server = trained(job, state)
    status = server.status(0.0, 0)
    assert status.finished and status.failure is None
    assert status.ledger.applied + status.ledger.dropped == 2 * BATCHES
    assert sum(score.samples for score in status.totals) == 2 * 1437
    version, parameters = server.current_parameters()
    assert version == status.version > 0
    assert torch.equal(replay(parts_of(made), server.events()), torch.from_numpy(parameters))


def test_a_checkpoint_is_where_a_server_continues():
    made = workload(**MADE)
    job, state = job_of(made, find_strategy("sync"), 2)
    whole = trained(job, state)
    place = Place(job)
    place.server.begin(state, math.inf)
    with ThreadPoolExecutor(2) as threads:
        working = [threads.submit(InProcessWorker(job, worker).work, place, 1, None) for worker in range(2)]
        while place.server.status(0.0, 0).version < 20:
            time.sleep(0.001)
        kept = place.server.snapshot()
        position = from_json(Position, kept.saved["position"], "position")
        assert position.version == kept.version >= 20
        assert position.ledger.updates == kept.version
        while place.server.status(0.0, 0).version < kept.version + 10:
            time.sleep(0.001)
        dead, place.server = place.server, Server(job)
        with dead.lock:
            dead.failure = ("PacelineError", "it is gone")  # whoever waits in it is answered
            dead._tell_all()
        place.server.begin(kept, math.inf)
        for worker in working:
            worker.result(60)
    status = place.server.status(0.0, 0)
    assert status.finished and status.ledger.applied_by_epoch == (BATCHES, BATCHES)
    assert torch.equal(*(torch.from_numpy(s.current_parameters()[1]) for s in (whole, place.server)))


def test_what_a_dead_worker_had_goes_to_others_and_its_late_payload_is_ignored():
    job, state = job_of(workload(**MADE), find_strategy("downpour"), 2)
    place = Place(job)
    place.server.begin(state, math.inf)
    joining = [threading.Thread(target=place.server.exchange, args=(Call(w, 1, "", WorkerReport()),)) for w in (0, 1)]
    for one in joining:
        one.start()
    for one in joining:
        one.join(10)
    place.server.died(1, 1)
    InProcessWorker(job, 0).work(place, 2, None)  # joins again: what it had as the first incarnation is done, too
    status = place.server.status(0.0, 0)
    assert status.ledger.applied_by_epoch == (BATCHES, BATCHES)
    assert status.ledger.returned >= 2
    reply, *_ = place.server.exchange(Call(1, 1, place.server.generation, WorkerReport()))
    assert reply.over


def test_a_payload_that_is_not_finite_ends_the_run_with_one_line_or_is_refused():
    spoilt = (Fault("corrupt", at=40, worker=1),)  # by then both have begun, however busy the machine is
    job, state = job_of(workload(**MADE), find_strategy("downpour"), 2, faults=spoilt)
    kind, text = trained(job, state).status(0.0, 0).failure
    assert kind == "Diverged" and "a payload is not finite (worker 1" in text and "\n" not in text
    job, state = job_of(workload(**MADE), find_strategy("downpour"), 2, faults=spoilt, on_bad_gradient="skip")
    status = trained(job, state).status(0.0, 0)
    assert status.failure is None and status.ledger.refused == 1
    assert [(fault.what, fault.worker) for fault in status.refusals] == [("refused", 1)]


@pytest.mark.parametrize(("within_s", "begins"), [(math.inf, False), (0.0, True)])
def test_the_first_rounds_wait_for_all_workers_but_no_longer_than_they_may(within_s, begins):
    """A server that Ray started again is joined by one worker after the other; one of them may have no room.

    Its part of a round is then done by another, so that the update is the same.
    """
    job, state = job_of(workload(**MADE), find_strategy("sync"), 2)
    server = Server(job)
    server.begin(state, within_s)
    first, *_ = server.exchange(Call(0, 1, "", WorkerReport()))
    assert (first.task is not None) == begins
    server.exchange(Call(1, 1, "", WorkerReport()))
    if not begins:
        first, *_ = server.exchange(Call(0, 1, first.generation, WorkerReport()))
    assert first.task.parts == 2


def test_an_earlier_call_does_not_take_the_task_of_a_worker_that_joins_again():
    """A worker that could not reach its server joins it again, while the server still holds a call of before."""
    job, state = job_of(workload(**MADE), find_strategy("sync"), 2)
    server = Server(job)
    server.begin(state, math.inf)
    before, *_ = server.exchange(Call(0, 1, "", WorkerReport()))
    with ThreadPoolExecutor(2) as threads:
        earlier = threads.submit(server.exchange, Call(0, 1, before.generation, WorkerReport()))
        while not earlier.running():
            time.sleep(0.001)
        again = threads.submit(server.exchange, Call(0, 1, "", WorkerReport()))
        while server.mailboxes[0].generation == before.generation:
            time.sleep(0.001)
        server.exchange(Call(1, 1, "", WorkerReport()))
        assert earlier.result(10)[0].task is None and earlier.result(10)[0].generation == ""
        assert again.result(10)[0].task is not None
    late, *_ = server.exchange(Call(0, 1, before.generation, WorkerReport()))
    assert late.generation == "" and late.task is None


def test_the_parameters_of_an_epoch_can_be_asked_for_again_until_the_next_ones_are():
    job, state = job_of(workload(**MADE), find_strategy("sync"), 2)
    server = trained(job, state)
    first, again = server.epoch_parameters(0), server.epoch_parameters(0)
    assert first[0] == again[0] == BATCHES // 2 and (first[1] == again[1]).all()
    assert server.epoch_parameters(1) is not None
    assert server.epoch_parameters(0) is None
