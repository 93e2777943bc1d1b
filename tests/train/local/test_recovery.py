"""What a server's successor finds in shared memory is all it needs. The workers here are words that a test writes."""

from __future__ import annotations

import os

import numpy as np
import pytest

from paceline.strategy.instructions import Compute
from paceline.strategy.strategy import Strategy, preset
from paceline.train.local import mailbox, marks
from paceline.train.local.memory import Memory
from paceline.train.local.preparation import sizes_of
from paceline.train.local.recovery import recovered
from paceline.train.local.server_process import ServerLoop
from paceline.train.local.settings import Settings
from paceline.train.local.words import LINE, SLOT_WORDS, Control, Of, Payload
from tests.strategy.flat_vectors import layout
from tests.train.local.small import workload


class Stage:
    def __init__(self, strategy: Strategy, workers: int, batches: int, epochs: int) -> None:
        where = layout(5, batches=batches, epochs=epochs)
        sizes = sizes_of(strategy, where, workers, record_events=False)
        self.memory, self.workers = Memory(sizes), workers
        self.bells = [os.eventfd(0, os.EFD_NONBLOCK) for _ in range(workers + 2)]
        self.settings = Settings(
            parent=os.getpid(), memory=self.memory.descriptor, wake_launcher=self.bells[0], wake_server=self.bells[1],
            wake_workers=tuple(self.bells[2:]), sizes=sizes, strategy=strategy, layout=where, workload=workload(),
            workers=workers, threads=1, number=workers, life=1, device="cpu", cache="", search_path=(),
            on_bad_gradient="stop",
        )  # fmt: skip
        self.lives = [0] * workers
        self.start_server()

    def start_server(self) -> None:
        """The first, or a successor: it knows nothing but what is in the memory."""
        self.server = ServerLoop(self.settings, self.memory)
        recovered(self.memory, self.settings, self.server)
        self.look()

    def look(self) -> None:
        while self.server._look():
            pass

    def word(self, worker: int, number: int) -> int:
        return worker * SLOT_WORDS + number

    def join(self, *workers: int) -> None:
        for worker in workers:
            self.lives[worker] += 1
            self.memory.slots[self.word(worker, Of.LIFE)] = self.lives[worker]
            self.memory.slots[self.word(worker, Of.JOINED)] = self.lives[worker]
        self.look()

    def kill(self, worker: int) -> None:
        self.memory.slots[self.word(worker, Of.DEAD)] = self.lives[worker]

    def task(self, worker: int) -> Compute | None:
        """What a worker has in hand."""
        last = self.memory.slots[self.word(worker, Of.GIVEN)]
        found = mailbox.given(self.memory, worker, last)
        if found is None or found[0] != self.lives[worker]:
            return None
        ready = self.memory.slots[self.word(worker, Of.PAYLOAD + last % 2 * LINE + Payload.READY)]
        return None if ready == last else found[1]

    def push(self, worker: int) -> None:
        """It finishes its task; the server, if there is one, has not looked yet."""
        task = self.task(worker)
        assert task is not None
        line = self.word(worker, Of.PAYLOAD + task.sequence % 2 * LINE)
        self.memory.slots[line + Payload.SAMPLES] = 8 * len(task.batches)
        self.memory.slots[line + Payload.PULLED] = self.memory.control[Control.VERSION]
        self.memory.slots[line + Payload.READY] = task.sequence

    def closed(self, epoch: int) -> list[int]:
        version = self.memory.control[Control.VERSION]
        return np.flatnonzero(marks.closed(self.memory.marks, epoch, version)).tolist()

    def close(self) -> None:
        for bell in self.bells:
            os.close(bell)
        self.memory.close()


@pytest.fixture
def stage():
    made: list[Stage] = []

    def make(*arguments) -> Stage:
        made.append(Stage(*arguments))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_an_idle_worker_keeps_its_own_parameters_through_the_server_s_death(stage):
    """Worker 1 has done the second epoch and waits for the first to end when the server dies."""
    s = stage(preset("easgd", push_every=2), 2, 2, 4)
    s.join(0, 1)
    assert [s.task(w).fetches for w in (0, 1)] == [(0,), (0,)], "who joins fetches"
    s.push(1)
    s.look()
    assert s.task(1) is None
    s.start_server()
    s.push(0)
    s.look()
    assert {s.task(0).epoch, s.task(1).epoch} == {2, 3}
    assert [s.task(w).fetches for w in (0, 1)] == [(), ()], "it would be drawn to the centre at once"


def test_a_worker_that_died_with_the_server_begins_anew(stage):
    s = stage(preset("easgd", push_every=2), 2, 2, 4)
    s.join(0, 1)
    s.push(1)
    s.look()
    s.kill(1)
    s.start_server()
    s.join(1)
    s.push(0)
    s.look()
    assert s.task(1).fetches == (0,)


@pytest.mark.parametrize("dies", ["before the round", "with its part in hand", "with its payload ready"])
def test_a_synchronous_round_has_all_its_parts_though_worker_and_server_died(stage, dies):
    s = stage(preset("sync"), 3, 12, 1)
    s.join(0, 1, 2)
    if dies == "before the round":
        for worker in range(3):
            s.push(worker)
        s.kill(2)
        s.look()
        s.push(0)
        s.look()
        first = 3
    else:
        s.push(0)
        if dies == "with its payload ready":
            s.push(2)
        s.look()
        s.kill(2)
        first = 0
    version = s.memory.control[Control.VERSION]
    s.start_server()
    while s.memory.control[Control.VERSION] == version:
        busy = next(worker for worker in (1, 0) if s.task(worker) is not None)
        s.push(busy)
        s.look()
    assert s.memory.control[Control.VERSION] == version + 1
    assert s.closed(0) == list(range(first + 3))
