"""What the launcher makes of the words: the speed of an epoch, and for how long each worker took part."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from paceline.step.tally import Score
from paceline.strategy.strategy import preset
from paceline.testing import FakeClock, Fault
from paceline.train import local
from paceline.train.local.accounts import Accounts
from paceline.train.local.crew import Crew, Patience
from paceline.train.local.memory import Memory
from paceline.train.local.preparation import sizes_of
from paceline.train.local.words import SLOT_WORDS, Control, Of
from tests.strategy.flat_vectors import layout
from tests.train.local.small import workload

SAMPLES = 1000


@pytest.fixture
def memory():
    made = Memory(sizes_of(preset("downpour"), layout(5, epochs=9), 2, record_events=False))
    yield made
    made.close()


@pytest.fixture
def crew(memory):
    bell = os.eventfd(0, os.EFD_NONBLOCK)
    yield Crew(memory, SimpleNamespace(workers=2, wake_server=bell, collective="shared"), ["cpu"] * 2, Patience(), ())
    os.close(bell)


@pytest.fixture
def clock():
    return FakeClock(500.0)


@pytest.fixture
def accounts(memory, crew, clock):
    made = Accounts(memory, crew, SimpleNamespace(workload=workload(epochs=9)), preset("downpour"), SAMPLES, clock)
    made.begin()
    return made


def test_epochs_that_are_seen_to_end_together_share_the_time_they_took(accounts, memory, clock):
    clock.sleep(10.0)
    memory.control[Control.EPOCHS_DONE] = 2
    accounts.look()
    clock.sleep(3.0)
    memory.control[Control.EPOCHS_DONE] = 3
    accounts.look()
    found = [accounts.epoch(epoch, Score()) for epoch in range(3)]
    assert [epoch.wall_s for epoch in found] == [5.0, 5.0, 3.0]
    assert [epoch.samples_per_s for epoch in found] == pytest.approx([200.0, 200.0, 1000 / 3])


def test_a_worker_does_not_compute_while_it_is_dead(accounts, crew, memory, clock):
    """Two lives, of 4 s and of 3 s, with 5 s in between, of which it waits for 1 s and communicates for 2 s."""
    crew.lives_s[1].append((500.0, 504.0))
    crew.since_s = [499.0, 509.0]
    slot = SLOT_WORDS
    memory.slots[slot + Of.WAITING_NS], memory.slots[slot + Of.COMMUNICATION_NS] = 1_000_000_000, 2_000_000_000
    clock.sleep(12.0)
    first, second = accounts.distribution().by_worker
    assert (first.computing_s, second.computing_s) == (12.0, 4.0)


def test_the_parts_of_a_replaced_worker_s_time_are_less_than_the_run_s():
    slow = tuple(Fault("slow", worker=worker, seconds=0.02) for worker in range(2))
    run = local.run(workload(epochs=20), "downpour", workers=2, faults=(Fault("kill", 20, 1), *slow))
    d = run.distribution
    whole, replaced = (w.computing_s + w.communicating_s + w.waiting_s for w in d.by_worker)
    assert d.by_worker[1].lives == 2
    assert whole == pytest.approx(d.seconds, abs=0.3)
    assert 0 < replaced < d.seconds - 0.5, "starting a process takes longer"


def test_a_resumed_run_tells_of_each_worker_from_its_beginning(tmp_path):
    """What workers have lost and got right is what the epochs have, over all of them."""
    local.run(workload(epochs=2), "downpour", workers=2, out=tmp_path / "run")
    run = local.resume(tmp_path / "run", changes={"epochs": 3})
    workers, samples = run.distribution.by_worker, 1437
    assert sum(worker.samples for worker in workers) == 3 * samples
    lost = sum(worker.loss * worker.samples for worker in workers)
    assert lost == pytest.approx(sum(epoch.loss * samples for epoch in run.epochs))
    right = sum(worker.accuracy * worker.samples for worker in workers)
    assert right == pytest.approx(sum(epoch.train_accuracy * samples for epoch in run.epochs))
