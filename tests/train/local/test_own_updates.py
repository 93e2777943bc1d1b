"""Workers that make updates themselves: one at a time, each batch once, whoever dies when."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch

from paceline.record import to_json
from paceline.strategy.instructions import Compute
from paceline.strategy.strategy import preset
from paceline.testing import Fault
from paceline.train import local
from paceline.train.local import drafts, made, mailbox, marks
from paceline.train.local.memory import Memory, Sizes, StateTensor
from paceline.train.local.own_updates import OwnUpdates
from paceline.train.local.pen import Pen
from paceline.train.local.preparation import SMALL, sizes_of
from paceline.train.local.recovery import recovered
from paceline.train.local.server_process import ServerLoop
from paceline.train.local.settings import Settings
from paceline.train.local.span_log import SpanLog
from paceline.train.local.words import LINE, SLOT_WORDS, Control, Of, Payload
from tests.strategy.flat_vectors import layout
from tests.train.local.small import workload

SIZES = Sizes(
    workers=2, groups=2, snapshots=False, pulled=False, numbers=1000, dtype="float32",
    state=(StateTensor("velocity", (1000,), "float32"),), corrections=(StateTensor("square", (1000,), "float32"),),
    batches=10, epochs=5, longest=1, ahead=4, own_updates=True,
)  # fmt: skip


@pytest.fixture
def memory():
    made = Memory(SIZES)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("strategy", "own"),
    [
        (preset("downpour"), True), (preset("delay-compensated"), True), (preset("easgd"), True),
        (preset("sync"), False), (preset("mixed"), False), (preset("softsync"), False), (preset("stale-sync"), False),
    ],
    ids=lambda value: getattr(value, "name", ""),
)  # fmt: skip
def test_whose_payloads_are_updates_by_themselves_makes_them(strategy, own):
    sizes = sizes_of(strategy, layout(5, batches=400), 2, record_events=False)
    assert sizes.own_updates is own
    assert sizes.ahead == (25 // strategy.push_every if own else 2)
    assert not sizes_of(strategy, layout(SMALL + 1), 2, record_events=False).own_updates, "it takes too long for that"
    assert not sizes_of(strategy, layout(5), 2, record_events=False, on_cpu=False).own_updates


HOLDER = """
import json, sys, time
from paceline.record import from_json
from paceline.train.local.memory import Memory, Sizes
from paceline.train.local.pen import Pen
memory = Memory(from_json(Sizes, json.loads(sys.argv[1]), "sizes"), int(sys.argv[2]))
with Pen(memory):
    print("has it", flush=True)
    time.sleep(60)
"""


def test_the_pen_is_one_process_s_and_never_a_dead_one_s(memory):
    command = [sys.executable, "-c", HOLDER, json.dumps(to_json(SIZES)), str(memory.descriptor)]
    with subprocess.Popen(command, pass_fds=(memory.descriptor,), stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "has it\n"
        pen, looks = Pen(memory), []
        assert not pen.take_soon()
        os.kill(holder.pid, signal.SIGSTOP)
        assert not pen.take_soon(), "one that hangs has it still"

        def kill_at_last() -> None:
            looks.append(1)
            if len(looks) == 5:
                holder.kill()

        with Pen(memory, kill_at_last):
            assert len(looks) >= 5
        assert holder.wait() == -signal.SIGKILL
    assert pen.take_soon() and pen.take_soon(), "who has it may take it once more"
    pen.put_down()
    assert pen.held == 1
    pen.put_down()


def _began(memory: Memory, version: int, who: int, batch: int) -> None:
    """All of an update but the words that publish it."""
    memory.control[Control.WRITING] = version
    made.write(memory, version, Compute(who, version, 0, (batch,), (0,), None), version - 1)
    memory.drafts[who].parameters.fill_(float(version))
    memory.drafts[who].state["velocity"].fill_(float(version))
    memory.drafts[who].kept["square"].fill_(float(version))
    marks.mark(memory, 0, (batch,), marks.APPLIED, version)


def test_what_was_published_and_not_carried_over_is_by_who_comes_next(memory):
    _began(memory, 1, 1, 3)
    drafts.publish(memory, 1, 1)
    _began(memory, 2, 1, 4)
    memory.control[Control.DRAFT] = (2 << 16) | 1
    memory.control[Control.VERSION] = 2  # and now it dies
    memory.parameters[0][:500] = 2.0
    with Pen(memory):
        assert (memory.parameters[0] == 2).all()
        assert (memory.states[0]["velocity"] == 2).all()
        assert (memory.corrections[1][0]["square"] == 2).all()
        assert not memory.corrections[0][0]["square"].any(), "that is another worker's"
        assert memory.control[Control.DRAFT] == 0


@pytest.mark.parametrize("draft", [0, (2 << 16) | 1], ids=["unsaid", "said"])
def test_what_was_not_published_never_was(memory, draft):
    _began(memory, 1, 0, 3)
    drafts.publish(memory, 1, 0)
    _began(memory, 2, 1, 4)
    memory.control[Control.DRAFT] = draft  # and now it dies
    with Pen(memory):
        assert (memory.parameters[0] == 1).all()
        assert marks.counts(memory.marks, 0, 2) == (1, 0, 0), "another version 2 would bring the mark back"
    _began(memory, 2, 0, 5)
    drafts.publish(memory, 2, 0)
    with Pen(memory):
        assert (memory.parameters[0] == 2).all()
        assert made.read(memory, 2) == (0, 2, 1)


def test_closed_batches_are_counted_by_epoch(memory):
    epochs = [0, 0, 1, 0, 1, 2, 1]
    found = [
        made.write(memory, version, Compute(0, version, epoch, (version,), (0,), None), version - 1)
        for version, epoch in enumerate(epochs, 1)
    ]
    assert found == [0, 1, 0, 2, 1, 0, 2]


class Workplace:
    """A server and workers in one process; each is told when to do what, and may be gone in between."""

    def __init__(self, strategy, batches: int, epochs: int, workers: int = 2) -> None:
        where = layout(5, batches=batches, epochs=epochs)
        sizes = dataclasses.replace(sizes_of(strategy, where, workers, record_events=False), ahead=4)
        assert sizes.own_updates
        self.memory, self.workers = Memory(sizes), workers
        self.bells = [os.eventfd(0, os.EFD_NONBLOCK) for _ in range(workers + 2)]
        self.settings = Settings(
            parent=os.getpid(), memory=self.memory.descriptor, wake_launcher=self.bells[0], wake_server=self.bells[1],
            wake_workers=tuple(self.bells[2:]), sizes=sizes, strategy=strategy, layout=where, workload=workload(),
            workers=workers, threads=1, number=workers, life=1, device="cpu", cache="", search_path=(),
            on_bad_gradient="skip",
        )  # fmt: skip
        self.memory.control[Control.EPOCHS_TAKEN] = epochs
        self.lives, self.done = [0] * workers, [0] * workers
        self.hands = [self._hand(worker) for worker in range(workers)]
        self.start_server()

    def _hand(self, worker: int) -> OwnUpdates:
        settings = dataclasses.replace(self.settings, number=worker)
        return OwnUpdates(settings, self.memory, SpanLog(self.memory, worker), lambda: None)

    def start_server(self) -> None:
        self.server = ServerLoop(self.settings, self.memory)
        with self.server._as_writer():
            self.server._finish_epochs()
            recovered(self.memory, self.settings, self.server)

    def look(self) -> None:
        while self.server._look():
            pass

    def join(self, worker: int) -> None:
        slot = worker * SLOT_WORDS
        self.lives[worker] += 1
        self.done[worker] = self.memory.slots[slot + Of.GIVEN]
        self.hands[worker] = self._hand(worker)
        self.memory.slots[slot + Of.LIFE] = self.lives[worker]
        self.memory.slots[slot + Of.WANTED] = 2
        self.memory.slots[slot + Of.JOINED] = self.lives[worker]

    def die(self, worker: int) -> None:
        self.memory.slots[worker * SLOT_WORDS + Of.DEAD] = self.lives[worker]

    def step(self, worker: int, *, itself: bool = True, value: float = 0.01) -> bool:
        """The worker does its next task, if it has one and room for the payload."""
        memory, slot = self.memory, worker * SLOT_WORDS
        tasks = mailbox.next_tasks(memory, worker, self.lives[worker], self.done[worker])
        if not tasks:
            return False
        task = tasks[0]
        place = task.sequence % 2
        line = slot + Of.PAYLOAD + place * LINE
        if memory.slots[slot + Of.ACKNOWLEDGED + place] != memory.slots[line + Payload.READY]:
            return False
        memory.payloads[worker][place].fill_(value)
        memory.slots[line + Payload.SAMPLES], memory.slots[line + Payload.PULLED] = 8, memory.control[Control.VERSION]
        if not itself or not self.hands[worker].make(task, memory.control[Control.VERSION]):
            memory.slots[line + Payload.READY] = task.sequence
        memory.slots[slot + Of.WANTED] = random.Random(task.sequence).randint(2, 4)
        self.done[worker] = task.sequence
        return True

    def close(self) -> None:
        for bell in self.bells:
            os.close(bell)
        self.memory.close()


@pytest.fixture
def workplace():
    made: list[Workplace] = []

    def make(*arguments, **options) -> Workplace:
        made.append(Workplace(*arguments, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_the_server_hears_of_updates_later_and_in_their_order(workplace):
    w = workplace(preset("downpour"), 8, 1)
    w.join(0)
    w.join(1)
    w.look()
    given = [w.memory.slots[n * SLOT_WORDS + Of.GIVEN] for n in (0, 1)]
    assert given == [2, 2], "until it is known how fast they are"
    assert [w.step(n) for n in (0, 1, 1, 0, 0)] == [True, True, True, True, False]
    assert w.memory.control[Control.VERSION] == 4 and w.server.coordinator.version == 0
    w.look()
    assert w.server.coordinator.version == 4
    assert w.server.coordinator.ledger.staleness == {0: 4}
    while w.step(0, itself=False) or w.step(1):
        w.look()
    assert w.server.coordinator.finished
    assert w.memory.control[Control.VERSION] == 8
    assert torch.allclose(w.memory.parameters[0], torch.full((5,), -0.1 * 8 * 0.01))


@pytest.mark.parametrize("strategy", ["downpour", "delay-compensated"])
@pytest.mark.parametrize("seed", range(8))
def test_every_batch_counts_once_whoever_dies_when(workplace, strategy, seed):
    """Steps, looks and deaths in any order; payloads that are left to the server, and some that are no numbers."""
    dice, epochs, batches = random.Random(seed), 4, 13
    w = workplace(preset(strategy), batches, epochs)
    w.join(0)
    w.join(1)
    for _ in range(3000):
        if w.server.coordinator.finished:
            break
        event, worker = dice.random(), dice.randrange(2)
        if event < 0.7:
            bad = dice.random() < 0.02
            w.step(worker, itself=dice.random() < 0.9, value=float("nan") if bad else 0.01)
        elif event < 0.95:
            w.look()
        elif event < 0.975:
            w.start_server()
        elif w.memory.slots[worker * SLOT_WORDS + Of.DEAD] < w.lives[worker]:
            w.die(worker)
            if dice.random() < 0.5:
                w.look()
            w.join(worker)
    assert w.server.coordinator.finished
    memory, version = w.memory, w.memory.control[Control.VERSION]
    applied, dropped, refused = memory.totals.sum(axis=0).tolist()
    assert memory.totals.sum(axis=1).tolist() == [batches] * epochs
    assert (applied, dropped, refused) == (version, 0, memory.control[Control.REFUSALS])
    assert memory.parameters[0].isfinite().all()
    header = memory.headers[version % 2]
    assert header[: w.workers].sum() == version == header[2 * w.workers :][:256].sum()
    assert all(not np.flatnonzero(~marks.closed(memory.marks, epoch, version)).size for epoch in (2, 3))


def test_a_worker_that_hangs_is_replaced_though_it_may_have_the_pen():
    """It is stopped anywhere, also while it writes; the others wait for it, and are not taken for dead themselves."""
    start_s = time.monotonic()
    faults = tuple(Fault("hang", at, at % 2) for at in (100, 201, 320))
    run = local.run(workload(batch=8, epochs=4), "downpour", workers=2, worker_timeout_s=1.0, faults=faults)
    d = run.distribution
    assert d.ledger.applied_by_epoch == (180,) * 4
    assert {fault.what for fault in d.faults} <= {"hung"}
    assert time.monotonic() - start_s < 60
