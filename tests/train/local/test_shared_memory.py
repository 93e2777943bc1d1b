"""The words in shared memory: one version is read, a task arrives whole, and what was never published never was."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import torch

from paceline.record import to_json
from paceline.strategy.instructions import Compute
from paceline.strategy.strategy import preset
from paceline.testing import FakeClock
from paceline.train.local import mailbox, marks, saved_state
from paceline.train.local.doorbell import Doorbell
from paceline.train.local.memory import Memory, Sizes, StateTensor
from paceline.train.local.pulling import PATIENCE_S, begin_writing, read_version
from paceline.train.local.standing import ledger_of, position_of
from paceline.train.local.words import LINE, Control, Of


@pytest.fixture
def memory():
    sizes = Sizes(
        workers=3, groups=3, snapshots=False, pulled=True, numbers=1000, dtype="float32",
        state=(StateTensor("velocity", (900,), "float32"), StateTensor("updates", (), "float64")), corrections=(),
        batches=10, epochs=5, longest=4,
    )  # fmt: skip
    made = Memory(sizes)
    yield made
    made.close()


def test_all_processes_see_the_same_places(memory):
    other = Memory(memory.sizes, os.dup(memory.descriptor))
    memory.payloads[2][1].fill_(3.0)
    memory.states[1]["updates"].fill_(7.0)
    memory.slots[Of.GIVEN] = 12
    assert torch.equal(other.payloads[2][1], torch.full((1000,), 3.0))
    assert other.payloads[2][0].sum() == other.pulled[0][0].sum() == other.parameters[0].sum() == 0
    assert other.states[1]["updates"].item() == 7
    assert other.slots[Of.GIVEN] == 12
    other.close()


def test_a_message_is_told_whole(memory):
    memory.tell(3, "näher " * 1000)
    assert memory.told(3).startswith("näher näher")
    memory.forget(3)
    assert memory.told(3) == ""


def test_a_pull_that_was_overtaken_begins_again(memory):
    """The server writes two versions while the first copy is under way, so that copy is not to be trusted."""
    for version in (0, 1):
        memory.parameters[version].fill_(float(version))
    into = torch.zeros(1000)
    copies = []

    def copy(version: int) -> None:
        copies.append(version)
        into[:500] = memory.parameters[version % 2][:500]
        if len(copies) == 1:
            for new in (1, 2):
                memory.control[Control.WRITING] = new
                memory.parameters[new % 2].fill_(float(new))
                memory.control[Control.VERSION] = new
        into[500:] = memory.parameters[version % 2][500:]

    assert read_version(memory, 0, copy) == (2, 1)
    assert copies == [0, 2]
    assert torch.equal(into, torch.full((1000,), 2.0))
    assert memory.readers[0] == 0


WRITER = """
import json, sys
from paceline.record import from_json
from paceline.train.local.memory import Memory, Sizes
from paceline.train.local.pulling import begin_writing
from paceline.train.local.words import Control
memory = Memory(from_json(Sizes, json.loads(sys.argv[1]), "sizes"), int(sys.argv[2]))
for version in range(1, 1_000_000):
    begin_writing(memory, version)
    memory.parameters[version % 2].fill_(float(version))
    memory.control[Control.VERSION] = version
"""


def test_pulls_beside_a_writing_server_are_never_torn(memory):
    """Every version is one number throughout; a copy that holds two different ones would be of two versions."""
    sizes = dataclasses.replace(memory.sizes, numbers=30_000)
    large = Memory(sizes)
    command = [sys.executable, "-c", WRITER, json.dumps(to_json(sizes)), str(large.descriptor)]
    into = torch.zeros(sizes.numbers)
    seen = set()
    with subprocess.Popen(command, pass_fds=(large.descriptor,)) as server:
        try:
            deadline = time.monotonic() + 60
            while len(seen) < 200:
                assert time.monotonic() < deadline and server.poll() is None
                version, _ = read_version(large, 1, lambda v: into.copy_(large.parameters[v % 2]))
                assert into.min() == into.max() == version
                seen.add(version)
        finally:
            server.kill()
    large.close()


def test_the_server_waits_for_a_reader_but_not_for_ever(memory):
    clock = FakeClock()
    memory.control[Control.VERSION] = 5
    memory.readers[LINE] = 5 + 1  # version 5 stays where it is
    begin_writing(memory, 6, clock, clock.sleep)
    assert clock() == 0.0
    memory.readers[LINE] = 4 + 1  # somebody reads version 4, whose place version 6 takes
    begin_writing(memory, 6, clock, clock.sleep)
    assert clock() == pytest.approx(PATIENCE_S, abs=1e-3)


def test_the_server_goes_on_as_soon_as_the_reader_is_done(memory):
    clock = FakeClock()
    memory.control[Control.VERSION], memory.readers[LINE] = 5, 4 + 1

    def sleep(seconds: float) -> None:
        clock.sleep(seconds)
        if clock() >= 0.5:
            memory.readers[LINE] = 0

    begin_writing(memory, 6, clock, sleep)
    assert clock() == pytest.approx(0.5, abs=1e-3)


def test_a_task_arrives_as_it_was_given(memory):
    tasks = [Compute(1, 7, 2, (3, 1, 9), (0, 2), None), Compute(1, 8, 2, (4,), (0,), 31)]
    for task in tasks:
        mailbox.give(memory, task, life=2, steps_since_fetch=0)
    assert mailbox.next_tasks(memory, 1, 2, 6) == tasks
    assert mailbox.next_tasks(memory, 1, 2, 7) == tasks[1:]
    assert mailbox.next_tasks(memory, 1, 2, 8) == []
    assert mailbox.next_tasks(memory, 1, 3, 6) == [], "they were given to a former life"
    assert mailbox.next_tasks(memory, 0, 2, 0) == []


def test_marks_of_an_unpublished_version_do_not_count(memory):
    marks.mark(memory, 0, (0, 1, 2), marks.APPLIED, 1)
    marks.mark(memory, 0, (3,), marks.REFUSED, 1)
    marks.mark(memory, 0, (4, 5), marks.APPLIED, 2)
    memory.control[Control.VERSION] = 1
    assert marks.counts(memory.marks, 0, 1) == (3, 0, 1)
    position = position_of(memory)
    assert position.done == {"0": (0, 1, 2, 3)}
    assert ledger_of(memory, 1).refused == 1
    marks.forget_later(memory.marks, 1)
    assert marks.counts(memory.marks, 0, 2) == (3, 0, 1), "another version 2 would otherwise bring them back"


def test_an_epoch_takes_the_place_of_the_one_two_before_it(memory):
    marks.mark(memory, 1, tuple(range(10)), marks.APPLIED, 3)
    marks.mark(memory, 3, (0, 1), marks.APPLIED, 4)
    assert marks.counts(memory.marks, 3, 4) == (2, 0, 0)
    assert np.flatnonzero(marks.closed(memory.marks, 1, 4)).tolist() == list(range(2, 10))


def test_a_sleeper_is_woken_and_who_is_awake_is_not_rung_for(memory):
    descriptor = os.eventfd(0, os.EFD_NONBLOCK)
    bell = Doorbell(memory, 0, descriptor)
    bell.ring()
    with pytest.raises(BlockingIOError):
        os.eventfd_read(descriptor)
    bell.lie_down()
    thread = threading.Thread(target=bell.sleep, args=(30.0,))
    thread.start()
    bell.ring()
    thread.join(5)
    assert not thread.is_alive()
    os.close(descriptor)


def test_a_process_whose_launcher_is_gone_ends():
    code = "from paceline.train.local.start import end_with; end_with(1 << 22); print('still here')"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (1, "")


def test_what_is_saved_is_of_one_version_though_an_epoch_ends_meanwhile(memory, monkeypatch):
    """The last update of an epoch is published while its predecessor is copied: the epoch is not done as of that."""
    marks.mark(memory, 0, tuple(range(9)), marks.APPLIED, 1)
    memory.control[Control.VERSION] = memory.control[Control.WRITING] = 1
    copies = []

    def overtaken(memory, reader, copy, meanwhile):
        def copy_slowly(version: int) -> None:
            if not copies:  # between the look at the version and the copy
                marks.mark(memory, 0, (9,), marks.APPLIED, 2)
                memory.control[Control.WRITING] = memory.control[Control.VERSION] = 2
                memory.control[Control.EPOCHS_DONE] = 1
            copies.append(version)
            copy(version)

        return read_version(memory, reader, copy_slowly)

    monkeypatch.setattr(saved_state, "read_version", overtaken)
    version, _, saved = saved_state.copy_state(memory, preset("downpour"))
    assert copies == [1, 2]
    assert (version, saved["epochs_done"]) == (2, 1)
    assert marks.counts(saved["marks"].numpy(), 0, version) == (10, 0, 0)
