"""The words in shared memory: a task arrives whole, what was never published never was, a position is read as it is."""

from __future__ import annotations

import math
import os
import threading

import numpy as np
import pytest
import torch

from paceline.errors import PacelineError
from paceline.step.tally import Score
from paceline.strategy.instructions import Apply, Compute, Contribution
from paceline.strategy.ledger import LedgerSummary
from paceline.strategy.position import Position
from paceline.strategy.presets import find_strategy
from paceline.training.drivers.local import batch_status, commit_log, mailbox, shared_memory
from paceline.training.drivers.local.doorbell import Doorbell
from paceline.training.drivers.local.event_log import EventLog, events_of
from paceline.training.drivers.local.fields import LINE, ControlField, HeaderField, PayloadField, SlotField
from paceline.training.drivers.local.position import ledger_of, position_of, put_position
from paceline.training.drivers.local.shared_memory import SharedMemory, Sizes, StateTensor
from paceline.training.drivers.local.worker_score import WorkerScore, score_of
from paceline.training.drivers.local.writer_lock import WriterLock
from tests.training.drivers.local.small import workload

SIZES = Sizes(
    workers=3, groups=3, numbers=1000, payload=1000, dtype="float32",
    state=(StateTensor("velocity", (900,), "float32"), StateTensor("updates", (), "float64")), corrections=(),
    batches=10, epochs=5, longest=4, fetched=True, events=1000, workers_commit=True,
)  # fmt: skip


@pytest.fixture
def memory():
    made = SharedMemory(SIZES)
    yield made
    made.close()


def task(worker: int, sequence: int, epoch: int = 0, batches: tuple[int, ...] = (0,)) -> Compute:
    return Compute(worker, sequence, epoch, batches, (0,))


def test_all_processes_see_the_same_places(memory):
    other = SharedMemory(memory.sizes, os.dup(memory.descriptor))
    memory.payloads[2][1].fill_(3.0)
    memory.states[1]["updates"].fill_(7.0)
    memory.slots[SlotField.GIVEN] = 12
    assert torch.equal(other.payloads[2][1], torch.full((1000,), 3.0))
    assert other.payloads[2][0].sum() == other.fetched[0][0].sum() == other.parameters[0].sum() == 0
    assert other.states[1]["updates"].item() == 7
    assert other.slots[SlotField.GIVEN] == 12
    other.close()


def test_a_message_is_reported_whole_or_cut_but_never_garbled(memory):
    memory.report(3, "näher " * 1000)
    assert memory.reported(3).startswith("näher näher")
    memory.clear_report(3)
    assert memory.reported(3) == ""


def test_too_little_memory_is_reported_beforehand(monkeypatch):
    monkeypatch.setattr(shared_memory, "free_memory_bytes", lambda: 1 << 16)
    with pytest.raises(PacelineError, match=r"too little shared memory: 3 workers with 1,000 parameters need"):
        SharedMemory(SIZES)


# Mailboxes and doorbells


def test_a_task_arrives_as_it_was_given(memory):
    tasks = [Compute(1, 7, 2, (3, 1, 9), (0, 2), None), Compute(1, 8, 2, (4,), (0,), 31, 3)]
    for one in tasks:
        mailbox.put(memory, one, incarnation=2, steps_since_fetch=5)
    assert mailbox.next_tasks(memory, 1, 2, 6) == tasks
    assert mailbox.next_tasks(memory, 1, 2, 7) == tasks[1:]
    assert mailbox.next_tasks(memory, 1, 2, 8) == []
    assert mailbox.next_tasks(memory, 1, 3, 6) == [], "they were given to a former incarnation"
    assert mailbox.next_tasks(memory, 0, 2, 0) == []
    assert memory.slot(1)[SlotField.STEPS_SINCE_FETCH] == 5


def test_a_task_takes_the_place_of_one_that_is_done(memory):
    for sequence in (1, 2, 3):
        mailbox.put(memory, task(0, sequence), 1, 0)
    assert mailbox.get(memory, 0, 1) is None
    assert [mailbox.get(memory, 0, sequence)[1].sequence for sequence in (2, 3)] == [2, 3]


def test_a_sleeper_is_woken_and_who_is_awake_is_not_notified(memory):
    descriptor = os.eventfd(0, os.EFD_NONBLOCK)
    bell = Doorbell(memory, 0, descriptor)
    bell.notify()
    with pytest.raises(BlockingIOError):
        os.eventfd_read(descriptor)
    bell.arm()
    woken = []
    thread = threading.Thread(target=lambda: woken.append(bell.wait(30.0)))
    thread.start()
    bell.notify()
    thread.join(5)
    assert woken == [True]
    os.close(descriptor)


# What became of batches


def test_the_status_of_what_is_not_published_does_not_count(memory):
    batch_status.mark(memory, 0, (0, 1, 2), batch_status.APPLIED, 1)
    batch_status.mark(memory, 0, (3,), batch_status.REFUSED, 1)
    batch_status.mark(memory, 0, (4, 5), batch_status.DROPPED, 2)
    memory.control[ControlField.PUBLISHED] = 1
    assert batch_status.counts(memory, 0) == (3, 0, 1)
    assert np.flatnonzero(batch_status.closed(memory, 0)).tolist() == [0, 1, 2, 3]
    memory.control[ControlField.PUBLISHED] = 2
    assert batch_status.counts(memory, 0) == (3, 2, 1)
    memory.control[ControlField.PUBLISHED] = 1
    batch_status.forget_unpublished(memory)
    memory.control[ControlField.PUBLISHED] = 2
    assert batch_status.counts(memory, 0) == (3, 0, 1), "another publication 2 would otherwise bring them back"
    assert batch_status.begun(memory) == [0]


def test_an_epoch_takes_the_place_of_the_one_two_before_it(memory):
    batch_status.mark(memory, 1, tuple(range(10)), batch_status.APPLIED, 0)
    batch_status.mark(memory, 3, (0, 1), batch_status.APPLIED, 0)
    assert batch_status.counts(memory, 3) == (2, 0, 0)
    assert np.flatnonzero(batch_status.closed(memory, 1)).tolist() == list(range(2, 10))
    assert [batch_status.closed_count(memory.header, epoch) for epoch in (1, 3)] == [0, 2]


# The commit log


def test_the_commit_log_and_the_counts_of_closed_batches_go_on_in_the_header(memory):
    found, header = [], memory.header
    for sequence, epoch in enumerate([0, 0, 1, 0, 1, 2, 1], 1):
        found.append(batch_status.closed_count(header, epoch))
        one = task(0, sequence, epoch, (sequence,))
        batch_status.mark(memory, epoch, one.batches, batch_status.APPLIED, memory.published)
        commit_log.add(memory, header, commit_log.COMMITTED, one, sequence - 1)
    assert found == [0, 1, 0, 2, 1, 0, 2]
    assert memory.word(HeaderField.EVENTS) == 7
    assert commit_log.read_event(memory, 7) == (commit_log.COMMITTED, 0, 7, 6)


def test_whoever_takes_the_lock_after_a_writer_s_death_finds_what_was_published(memory):
    batch_status.mark(memory, 0, (0,), batch_status.APPLIED, 0)
    memory.control[ControlField.WRITING] = 1
    memory.headers[1][:] = memory.header
    batch_status.mark(memory, 0, (1,), batch_status.APPLIED, 1)
    commit_log.add(memory, memory.headers[1], commit_log.COMMITTED, task(1, 1, 0, (1,)))
    with WriterLock(memory):
        assert memory.control[ControlField.WRITING] == memory.published == 0
        assert memory.word(HeaderField.EVENTS) == 0
        assert not memory.batch_status[0, 1], "another publication 1 would otherwise close it"
        assert batch_status.closed_count(memory.header, 0) == 1


def test_a_word_of_a_header_that_is_being_overwritten_is_read_once_more():
    memory = SharedMemory(SIZES)

    class Control:
        """Two more publications come between the look at the number and the look at the header."""

        looks = 0

        def __getitem__(self, field: int) -> int:
            if field == ControlField.PUBLISHED:
                self.looks += 1
                return 4 if self.looks == 1 else 6
            return 6

    memory.headers[0][HeaderField.VERSION] = 3
    memory.control = Control()
    assert memory.version == 3
    assert memory.control.looks == 2


# Positions


def position(**changes) -> Position:
    ledger = LedgerSummary(
        updates=21, applied=21, dropped=3, refused=1, returned=4, applied_by_epoch=(8, 9, 4),
        staleness={"0": 15, "1": 4, "7": 2},
    )  # fmt: skip
    values = {
        "version": 21, "opened": 3, "done": {"1": tuple(range(9)), "2": (0, 2, 3, 5, 6, 7)},
        "sequences": {"0": 12, "1": 9, "2": 0}, "clocks": {"0": 8, "1": 9, "2": 4}, "ledger": ledger,
    }  # fmt: skip
    return Position(**{**values, **changes})


@pytest.mark.parametrize("workers_commit", [False, True])
def test_a_position_that_is_put_is_the_one_that_is_read(workers_commit):
    made = SharedMemory(Sizes(**{**vars(SIZES), "workers_commit": workers_commit}))
    put_position(made, position())
    assert made.snapshot == (0, 21)
    assert position_of(made) == position()
    assert made.control[ControlField.EPOCHS_DONE] == made.control[ControlField.EPOCH_KEPT] == 1
    assert made.totals[0].tolist() == [8, 2, 0], "which epoch's were dropped is not kept, only how many"
    assert [made.header[HeaderField.ROUNDS + group] for group in range(3)] == [8, 9, 4]
    made.close()


def test_a_position_between_two_epochs_has_none_open(memory):
    ledger = LedgerSummary(20, 20, applied_by_epoch=(10, 10), staleness={"0": 20})
    at_end = position(version=20, opened=2, done={}, ledger=ledger)
    put_position(memory, at_end)
    assert position_of(memory) == at_end
    assert ledger_of(memory) == ledger


# The event log


def test_events_are_read_as_they_were_written_and_end_with_the_version(memory):
    log, header = EventLog(memory), memory.header
    first, second = Compute(1, 5, 2, (3, 1), (0, 1)), Compute(0, 9, 2, (7,), (0,))
    for one, versions in ((first, (11, 12)), (second, (12,))):
        place = memory.place(one.sequence)
        memory.slot(one.worker)[SlotField.PAYLOAD + place * LINE + PayloadField.FETCHES] = len(versions)
        memory.fetched_versions[one.worker, place, : len(versions)] = versions
        log.task(one, 4, header)
    order = Apply(13, (Contribution(1, (first, second), 1), Contribution(0, (second,), 0)), 2, 6)
    log.update(order, header)
    memory.headers[1][:] = header
    log.update(order._replace(update=14), memory.headers[1])  # its writer died before that was published
    found = events_of(memory, workload(), find_strategy("downpour"))
    assert [(t.worker, t.sequence, t.incarnation, t.versions) for t in found.tasks] == [
        (1, 5, 4, (11, 12)),
        (0, 9, 4, (12,)),
    ]
    assert found.tasks[0].task == first
    assert [update.update for update in found.updates] == [13]
    (update,) = found.updates
    assert [(c.group, c.payloads, c.staleness) for c in update.contributions] == [
        (1, ((1, 5), (0, 9)), 1),
        (0, ((0, 9),), 0),
    ]
    assert (update.epoch, update.closed) == (2, 6)


def test_more_events_than_there_is_room_for_are_an_error_that_says_what_to_do(memory):
    memory.header[HeaderField.RECORDED] = 8 * 1000 - 3
    with pytest.raises(PacelineError, match="train without `record_events`"):
        EventLog(memory).update(Apply(1, (), 0, 0), memory.header)


# Scores


def scored(tally, loss: float) -> None:
    tally.add(torch.tensor(loss), torch.tensor([[1.0, 0.0], [1.0, 0.0]]), torch.tensor([0, 1]))


def test_a_score_is_one_write_never_parts_of_two(memory):
    score = WorkerScore(memory, 1, top=1)
    rows = memory.scores[1]
    scored(score.tally(0), 0.5)
    assert score_of(rows, 0) == Score(), "it is written now and then"
    score.write()
    whole = score_of(rows, 0)
    assert (whole.samples, whole.correct, whole.loss) == (2, 1, 0.5)
    count = rows[0][0]
    assert count % 2 == 0 and count > 0
    rows[0][0] = count + 1  # a write is under way, and its writer is dead
    rows[0][1] = math.nan
    assert score_of(rows, 0) == Score()
    assert memory.scores[0].sum() == memory.scores[2].sum() == 0


def test_a_successor_adds_to_what_was_counted_before_and_ends_a_write_that_was_cut_off(memory):
    first = WorkerScore(memory, 0, top=1)
    scored(first.tally(3), 0.5)
    first.write()
    second = WorkerScore(memory, 0, top=1)
    tally = second.tally(3)
    scored(tally, 1.5)
    memory.scores[0][3][0] += 1  # somebody was cut off in the middle
    second.write()
    found = score_of(memory.scores[0], 3)
    assert (found.samples, found.loss) == (4, 1.0)
    assert memory.scores[0][3][0] % 2 == 0
