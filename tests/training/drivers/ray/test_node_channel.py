"""A worker on the server's node trains through the short way; where that does not exist, through Ray's."""

from __future__ import annotations

import math
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client
from types import SimpleNamespace

import pytest
import torch

from paceline.simulation.replay import replay
from paceline.strategy.presets import find_strategy
from paceline.training.drivers.ray.messages import Call, ChannelAddress, Push, ServerActors, ServerLost, WorkerReport
from paceline.training.drivers.ray.node_channel import Channel, ChannelListener
from paceline.training.drivers.ray.node_memory import OfferedMemory, accept_memory
from paceline.training.drivers.ray.server import Server
from paceline.training.drivers.ray.worker import Worker
from tests.contract.small_training import workload
from tests.contract.test_conservation import strategy
from tests.training.drivers.ray.in_process import job_of, parts_of

MADE = {"batch": 16, "epochs": 2}
server_link = pytest.importorskip("paceline.training.drivers.ray.server_link", exc_type=ImportError)


class Handle:
    """A server as Ray's handle of it; `called` counts the calls, but for those that read its clock."""

    def __init__(self, server: Server) -> None:
        self.server, self.called = server, 0
        self.threads = ThreadPoolExecutor(4)

    def _method(self, name: str) -> SimpleNamespace:
        def remote(*arguments: object) -> Future[object]:
            self.called += 1
            return self.threads.submit(getattr(self.server, name), *arguments)

        return SimpleNamespace(options=lambda num_returns: SimpleNamespace(remote=remote))

    exchange = property(lambda self: self._method("exchange"))
    fetch = property(lambda self: self._method("fetch"))
    clock = property(lambda self: SimpleNamespace(remote=lambda: self.threads.submit(self.server.clock)))


@pytest.fixture
def nodes(monkeypatch):
    """The nodes of the server and of its workers."""
    found = {"server": "one", "worker": "one"}
    fake = SimpleNamespace(
        get=lambda sent, timeout: answer if isinstance(answer := sent.result(timeout), float) else list(answer),
        get_runtime_context=lambda: SimpleNamespace(get_node_id=lambda: found["worker"]),
    )
    monkeypatch.setattr(server_link, "ray", fake)
    monkeypatch.setattr(server_link, "node_address", lambda: "10.0.0.1")
    monkeypatch.setattr(Server, "node", lambda server: found["server"])
    return found


def trained(job, state):
    server = Server(job)
    server.begin(state, math.inf)
    handle = ServerActors(Handle(server))
    with ThreadPoolExecutor(job.workers) as threads:
        for worker in [threads.submit(Worker(job, w).work, handle, 1, None) for w in range(job.workers)]:
            worker.result(60)
    return server, handle.server.called


@pytest.mark.parametrize("name", ["sync", "downpour", "delay-compensated", "mixed", "local-sgd", "easgd"])
def test_only_joining_goes_through_ray_and_the_run_is_repeated_bitwise(name, nodes):
    made = workload(**MADE)
    job, state = job_of(made, strategy(name), 2, record_events=True)
    server, called = trained(job, state)
    status = server.status(0.0, 0)
    assert status.finished and status.ledger.applied_by_epoch == (90, 90)
    assert called == 2, "each worker joined"
    assert torch.equal(replay(parts_of(made), server.events()), torch.from_numpy(server.current_parameters()[1]))


def test_a_worker_of_another_node_goes_through_ray(nodes):
    nodes["worker"] = "two"
    server, called = trained(*job_of(workload(**MADE), find_strategy("downpour"), 2))
    assert server.status(0.0, 0).finished and server.listener is None
    assert called > 180


def test_so_does_one_that_has_no_memory_to_share(nodes, monkeypatch):
    def refuse(name: str) -> int:
        raise OSError("no such system call")

    monkeypatch.setattr("os.memfd_create", refuse)
    server, called = trained(*job_of(workload(**MADE), find_strategy("downpour"), 2))
    assert server.status(0.0, 0).finished and called > 180


@pytest.mark.parametrize("again", ["takes the part of another", "joins again"])
def test_a_payload_that_waits_for_its_round_is_not_overwritten(again, nodes):
    """It is in the memory of its worker, which may be given something else to compute before the round is complete."""
    job, state = job_of(workload(**MADE), find_strategy("sync"), 2)
    server = Server(job)
    server.begin(state, 0.0)
    offered = OfferedMemory(job)
    memory, mine = accept_memory(job, offered.offer), offered.memory
    other, *_ = server.exchange(Call(1, 1, "", WorkerReport(), node="two"))
    reply, *_ = server.exchange(Call(0, 1, "", WorkerReport(), node="one"))
    assert reply.task.round == other.task.round
    mine.payload.fill_(1.0)
    push = Push(reply.task.sequence, 16, 1, size=job.payload_size)
    reply, _ = server.answer_on_node(memory, (Call(0, 1, reply.generation, WorkerReport(), push),))
    assert reply.task is None, "the other's part is awaited"
    if again == "joins again":
        reply, *_ = server.exchange(Call(0, 1, "", WorkerReport(), node="one"))
    server.died(1, 1)
    while reply.task is None:
        reply, _ = server.answer_on_node(memory, (Call(0, 1, reply.generation, WorkerReport()),))
    mine.payload.fill_(3.0)
    push = Push(reply.task.sequence, 16, 1, size=job.payload_size)
    server.answer_on_node(memory, (Call(0, 1, reply.generation, WorkerReport(), push),))
    version, found = server.current_parameters()
    assert version == 1
    torch.testing.assert_close(torch.from_numpy(found), state.parameters - 0.05 * 2.0)


@pytest.fixture
def listener():
    job, _ = job_of(workload(), find_strategy("downpour"), 2)
    answering = threading.Event()

    def answer(memory, request):
        if request == "later":
            answering.wait(10)
        return request

    found = ChannelListener(job, answer)
    found.answering = answering
    yield found
    answering.set()


def test_answers_are_found_in_any_order_and_a_wait_has_a_limit(listener):
    channel = Channel(listener.address, OfferedMemory(listener.job))
    first, second = channel.send("first"), channel.send("second")
    assert channel.receive(second, 10.0) == "second"
    assert channel.receive(first, 10.0) == "first"
    late = channel.send("later")
    with pytest.raises(TimeoutError):
        channel.receive(late, 0.01)
    listener.answering.set()
    assert channel.receive(late, 10.0) == "later"


def test_a_server_that_is_gone_is_lost_at_once():
    job, _ = job_of(workload(), find_strategy("downpour"), 2)

    def die(memory, request):
        raise OSError("as if the process had died")

    listener = ChannelListener(job, die)
    channel = Channel(listener.address, OfferedMemory(job))
    with pytest.raises(ServerLost):
        channel.receive(channel.send("anything"), 10.0)
    with pytest.raises(OSError, match="refused"):
        Channel(ChannelAddress("\0paceline-nobody", b"key"), OfferedMemory(job))


def test_a_stranger_is_not_served(listener):
    with pytest.raises(AuthenticationError):
        Client(listener.address.name, "AF_UNIX", authkey=b"another key")
    with pytest.raises(OSError, match="does not answer"):
        Channel(ChannelAddress(listener.address.name, b"another key"), OfferedMemory(listener.job))
    assert Channel(listener.address, OfferedMemory(listener.job))
