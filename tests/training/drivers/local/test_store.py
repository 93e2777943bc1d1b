"""An update is whole or not there, whoever dies at which line; the parameters that are read are of one version."""

from __future__ import annotations

import json
import time

import pytest
import torch

from paceline.record import to_json
from paceline.step.optimizers import Rule
from paceline.strategy.presets import find_strategy
from paceline.strategy.strategy import Strategy
from paceline.strategy.updater import BLOCK, Updater
from paceline.training.drivers.local.fields import ControlField, HeaderField
from paceline.training.drivers.local.preparation import sizes_of, why_server_commits
from paceline.training.drivers.local.shared_memory import UPDATE_WORDS, SharedMemory, Sizes
from paceline.training.drivers.local.store import SharedStore
from paceline.training.drivers.local.writer_lock import WriterLock
from tests.own_process import OwnProcess
from tests.strategy.flat_vectors import layout
from tests.training.drivers.local.stage import Stage, dies_at

OWN = {
    "downpour": find_strategy("downpour"),
    "delay-compensated": find_strategy("delay-compensated"),
    "easgd": find_strategy("easgd", push_every=2),
}
ROUNDS = {
    "sync": find_strategy("sync"),
    "mixed": find_strategy("mixed"),
    "local-sgd": find_strategy("local-sgd", fetch_every=2, push_every=2),
}
BY_SERVER = {
    "softsync": find_strategy("softsync"),
    "stale-sync": find_strategy("stale-sync"),
    "backup": find_strategy("backup"),
    "sync, custom correction": Strategy("custom", correction=f"{__name__}:halved"),
}
"""Who commits an update decides what can be cut off in the middle."""


def halved(gradient, late):
    return gradient / 2


def without_log(content: dict) -> dict:
    return {name: value for name, value in content.items() if name != "log"}


def deaths(granularity: str):
    """Numbers of lines, or of Python's instructions, as long as there are any."""
    return range(100_000), granularity == "instruction"


GRANULARITY = pytest.mark.parametrize("granularity", ["line", pytest.param("instruction", marks=pytest.mark.slow)])


# A worker that commits


@GRANULARITY
@pytest.mark.parametrize("name", OWN)
def test_a_worker_s_own_update_is_whole_or_not_there_at_whatever_line_it_dies(stage, name, granularity):
    """And the row of the commit log is there exactly if the update is."""
    s = stage(OWN[name], 2, 4 * OWN[name].push_every, 2)
    s.join(0, 1)
    s.poll()
    for worker in (0, 1, 0):  # the last update of the epoch is the one that is cut off
        assert s.step(worker)
    s.poll()
    task, saved = s.compute(1), s.saved()
    before = s.content()
    s.push(1, task)
    after = s.content()
    assert after["version"] == before["version"] + 1 and after["log"] == before["log"] + 1
    found = set()
    numbers, opcodes = deaths(granularity)
    for number in numbers:
        s.restore(saved)
        s.stores[1] = s.new_store(1)
        died = dies_at(number, lambda: s.push(1, task), opcodes=opcodes)
        content = s.content()
        assert content in (before, after), f"cut off at {granularity} {number}"
        assert content["version"] >= max(found, default=0), "what is published stays so"
        found.add(content["version"])
        if not died:
            break
    assert found == {before["version"], after["version"]}


@pytest.mark.parametrize("name", OWN)
def test_after_a_worker_s_death_in_its_update_every_batch_counts_once(stage, name):
    """Another worker makes the version of that number; the run then comes to its end."""
    for number in range(0, 10_000, 3):
        s = stage(OWN[name], 2, 6, 2)
        s.join(0, 1)
        s.poll()
        s.step(0)
        task = s.compute(1)
        died = dies_at(number, lambda s=s, task=task: s.push(1, task))
        s.kill(1)
        s.step(0)
        s.poll()
        s.join(1)
        s.finish()
        s.assert_every_batch_counts_once()
        assert s.memory.totals[:, 0].tolist() == [6, 6]
        if not died:
            return


@GRANULARITY
@pytest.mark.parametrize("name", ROUNDS)
def test_a_round_is_committed_once_at_whatever_line_its_committer_dies(stage, name, granularity):
    """The member that is left commits the round if all payloads are in; its number is then that of the version."""
    s = stage(ROUNDS[name], 2 if ROUNDS[name].groups == 1 else 4, 8, 1)
    s.join(*range(s.workers))
    s.poll()
    s.step(0)
    task, saved = s.compute(1), s.saved()
    before = s.content()
    s.push(1, task)
    after = s.content()
    assert after["version"] == before["version"] + 1
    found = set()
    numbers, opcodes = deaths(granularity)
    for number in numbers:
        s.restore(saved)
        s.stores = [s.new_store(worker) for worker in range(s.workers)]
        died = dies_at(number, lambda: s.push(1, task), opcodes=opcodes)
        assert s.content() in (before, after), f"cut off at {granularity} {number}"
        s.stores[0].commit_round(0, s.members(0))
        content = s.content()
        assert content in (before, after)
        assert s.round(0) == content["rounds"][0] == content["version"]
        found.add(content["version"])
        if not died:
            break
    assert found == {before["version"], after["version"]}


@pytest.mark.parametrize("name", ROUNDS)
def test_after_a_committer_s_death_the_run_ends_with_the_same_parameters(stage, name):
    """Of one group the same bits as undisturbed; of two, in which another may commit meanwhile, every batch once."""
    workers = 2 if ROUNDS[name].groups == 1 else 4

    def new() -> Stage:
        made = stage(ROUNDS[name], workers, 6, 2)
        made.join(*range(workers))
        made.poll()
        return made

    whole = new()
    whole.finish()
    for number in range(0, 10_000, 5):
        s = new()
        s.step(0)
        task = s.compute(1)
        died = dies_at(number, lambda s=s, task=task: s.push(1, task))
        s.kill(1)
        for other in range(2, workers):  # another group takes the number of the version that was being made
            s.step(other)
        s.poll()
        s.join(1)
        s.finish()
        s.assert_every_batch_counts_once()
        assert s.memory.totals[:, 0].tolist() == [6, 6]
        if workers == 2:
            assert torch.equal(s.parameters, whole.parameters), f"cut off at line {number}"
        if not died:
            return


def test_a_dead_committer_s_version_number_is_another_group_s(stage, monkeypatch):
    """Group 0 was about to make version 1 when its committer died; group 1 makes version 1. That is not group 0's."""
    s = stage(find_strategy("mixed"), 4, 8, 1)
    s.join(0, 1, 2, 3)
    s.poll()
    s.step(0)
    task = s.compute(1)

    def die(*_: object) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as dying, pytest.raises(RuntimeError, match="killed"):
        dying.setattr(s.stores[1].updater, "gradient_of", die)
        s.push(1, task)
    assert s.memory.control[ControlField.WRITING] > s.memory.published
    assert s.step(2) and s.step(3)
    assert (s.version, s.round(0), s.round(1)) == (1, 0, 1)
    assert not s.stores[0].commit_round(0, [0, 1]), "the mean was to take the place of its payload, which is lost"
    s.kill(1)
    s.poll()
    s.join(1)
    s.poll()
    s.finish()
    assert (s.version, s.round(0), s.round(1)) == (4, 2, 2)
    s.assert_every_batch_counts_once()


@GRANULARITY
@pytest.mark.parametrize("name", ["downpour", "sync"])
def test_a_refusal_is_whole_or_not_there_at_whatever_line_its_worker_dies(stage, name, granularity):
    """A batch that was marked and not reported is given to another; one that was reported is closed for good."""
    numbers, opcodes = deaths(granularity)
    ends = set()
    for number in numbers[:: 25 if opcodes else 1]:
        s = stage({**OWN, **ROUNDS}[name], 2, 4, 1)
        s.join(0, 1)
        s.poll()
        s.step(0)
        task = s.compute(1, finite=False)
        died = dies_at(number, lambda s=s, task=task: s.push(1, task, finite=False), opcodes=opcodes)
        s.kill(1)
        s.poll()
        s.join(1)
        s.finish()
        s.assert_every_batch_counts_once()
        applied, dropped, refused = s.counts(0)
        assert (applied + refused, dropped) == (4, 0)
        assert refused == s.memory.control[ControlField.REFUSALS] <= 1
        ends.add(refused)
        if not died:
            break
    assert ends == {0, 1}


def test_a_round_of_refused_payloads_is_over_and_the_server_hears_of_all_of_them_at_once(stage):
    s = stage(find_strategy("sync"), 2, 8, 1)
    s.join(0, 1)
    s.poll()
    s.step(0, finite=False)
    s.poll()
    assert s.memory.control[ControlField.REFUSALS] == 0, "it is part of a round that is not over"
    s.step(1, finite=False)
    assert (s.version, s.round(0)) == (0, 1)
    s.poll()
    assert s.memory.control[ControlField.REFUSALS] == 2
    s.finish()
    s.assert_every_batch_counts_once()


# The server commits


@pytest.mark.parametrize("name", BY_SERVER)
def test_a_server_that_dies_at_any_line_of_its_work_loses_nothing(stage, name):
    """A successor continues with what is in shared memory."""
    workers = 2

    def new() -> Stage:
        made = stage(BY_SERVER[name], workers, 4, 2)
        assert not made.commits
        made.join(*range(workers))
        made.poll()
        return made

    whole = new()
    whole.finish()
    for number in range(0, 10_000, 7):
        s = new()
        for worker in range(workers):
            s.step(worker)
        died = dies_at(number, s.poll)
        s.start_server()
        s.finish()
        s.assert_every_batch_counts_once()
        applied, dropped, _ = s.memory.totals.sum(axis=0).tolist()
        assert applied + dropped == 8 and (dropped > 0) <= (name == "backup")
        if "sync," in name:
            assert torch.equal(s.parameters, whole.parameters), f"cut off at line {number}"
        if not died:
            return


@GRANULARITY
def test_the_server_s_commit_is_whole_or_not_there(stage, granularity):
    s = stage(find_strategy("softsync", correction=f"{__name__}:halved"), 2, 4, 2)
    s.join(0, 1)
    s.poll()
    s.step(0)
    s.poll()
    s.step(1)
    orders, commit = [], s.server.store.commit
    s.server.store.commit = orders.append  # type: ignore[method-assign]
    with pytest.raises(AssertionError):  # its update is not made, so neither is the epoch's end
        s.poll()
        raise AssertionError
    s.server.store.commit = commit  # type: ignore[method-assign]
    (order,), saved = orders, s.saved()
    before = s.content()
    commit(order)
    after = s.content()
    numbers, opcodes = deaths(granularity)
    found = []
    for number in numbers:
        s.restore(saved)
        died = dies_at(number, lambda: s._any_store().commit(order), opcodes=opcodes)
        found.append(s.content())
        if not died:
            break
    assert len(found) > 20 and found[0] == before and found[-1] == after
    assert all(content in (before, after) for content in found)


def test_workers_and_server_commit_the_same_bits(stage, monkeypatch):
    """Who makes an update is a matter of speed."""
    by_workers = stage(find_strategy("sync"), 3, 9, 2)
    monkeypatch.setattr("tests.training.drivers.local.stage.why_server_commits", lambda *_: "for this test")
    by_server = stage(find_strategy("sync"), 3, 9, 2)
    assert by_workers.commits and not by_server.commits
    for s in (by_workers, by_server):
        s.join(0, 1, 2)
        s.poll()
        s.finish()
    assert torch.equal(by_workers.parameters, by_server.parameters)
    assert without_log(by_workers.content()) == without_log(by_server.content())


@pytest.mark.parametrize(
    ("name", "numbers", "places"),
    [("sync", 1000, 32), ("downpour", 1 << 18, 16), ("sync", 1 << 20, 4), ("softsync", 1000, 2)],
)
def test_there_are_as_many_places_as_the_machine_s_cache_has_room_for(name, numbers, places):
    """They are used in turn, and each time around costs a snapshot."""
    strategy, made = find_strategy(name), layout(numbers, rule=Rule("sgd", 1.0), batches=4, epochs=1)
    commits = not why_server_commits(strategy, Updater(strategy, made, 2), 2, "cpu", "shared")
    sizes = sizes_of(strategy, made, 2, record_events=False, workers_commit=commits)
    assert sizes.places == places
    memory = SharedMemory(sizes)
    assert len({memory.payload(1, sequence).data_ptr() for sequence in range(40)}) == places
    memory.close()


@pytest.mark.parametrize("name", ["sync", "downpour"])
def test_a_payload_is_its_worker_s_own_until_it_is_pushed(stage, name):
    """Writing to memory that another core has in its cache would slow the gradient down."""
    s = stage(find_strategy(name), 2, 8, 1)
    s.join(0, 1)
    s.poll()
    before = torch.stack(s.memory.places)
    task = s.compute(0)
    assert torch.equal(torch.stack(s.memory.places), before)
    s.push(0, task)
    assert torch.equal(s.memory.payload(0, task.sequence), s.computed[0])


def test_a_place_is_used_again_when_a_snapshot_has_its_update(stage):
    s = stage(find_strategy("downpour"), 2, 8, 1, record_events=True)
    s.join(0, 1)
    s.poll()
    snapshots = []
    for _ in range(s.memory.sizes.places + 1):
        assert s.step(0)
        s.poll()
        snapshots.append(s.memory.snapshot)
    assert snapshots == [(0, 0)] * s.memory.sizes.places + [(1, s.memory.sizes.places)]


# Readers


def write_version(memory: SharedMemory, version: int) -> None:
    """Publishes a version whose every number is `number_of` it."""
    memory.control[ControlField.WRITING] = version
    header, before = memory.headers[version % 2], memory.header
    header[:] = before
    header[HeaderField.VERSION] = version
    between = 0
    if memory.sizes.workers_commit:
        between = memory.sizes.places
        place, row = memory.place_of(version % 2, version // 2), version % memory.update_rows * UPDATE_WORDS
        memory.place_versions[place] = 0
        memory.gradients[place].fill_(float(version % 8))
        memory.updates[row], memory.updates[row + 1], memory.updates[row + 2] = place, 0, 0
        memory.place_versions[place] = version
    if version - before[HeaderField.SNAPSHOT_VERSION] >= between:
        count = memory.control[ControlField.SNAPSHOT_WRITING] = before[HeaderField.SNAPSHOT] + 1
        memory.parameters[count % 2].fill_(number_of(version))
        header[HeaderField.SNAPSHOT], header[HeaderField.SNAPSHOT_VERSION] = count, version
    memory.control[ControlField.PUBLISHED] = version


def number_of(version: int) -> float:
    """Gradients of `version` % 8, each at a rate of 1."""
    rounds, rest = divmod(version, 8)
    return -float(28 * rounds + rest * (rest + 1) // 2)


WRITER = """
import json, sys
from paceline.record import from_json
from paceline.training.drivers.local.shared_memory import SharedMemory, Sizes
from tests.training.drivers.local.test_store import write_version
memory = SharedMemory(from_json(Sizes, json.loads(sys.argv[1]), "sizes"), int(sys.argv[2]))
for version in range(1, 4_000_000):  # as far as float32 counts
    write_version(memory, version)
"""
HOLDER = """
import json, sys, time
from paceline.record import from_json
from paceline.training.drivers.local.shared_memory import SharedMemory, Sizes
from paceline.training.drivers.local.writer_lock import WriterLock
memory = SharedMemory(from_json(Sizes, json.loads(sys.argv[1]), "sizes"), int(sys.argv[2]))
lock = WriterLock(memory)
with lock:
    print("has it", flush=True)
    time.sleep(60)
"""


def large(places: int = 0) -> SharedMemory:
    """`places` is the number of gradient buffers per worker; 0: the server commits."""
    return SharedMemory(
        Sizes(
            workers=2, groups=2, numbers=BLOCK, payload=BLOCK, dtype="float32", state=(), corrections=(), batches=4,
            epochs=1, longest=1, places=places or 2, workers_commit=places > 0,
        )
    )  # fmt: skip


def beside(program: str, memory: SharedMemory) -> OwnProcess:
    words = ["-c", program, json.dumps(to_json(memory.sizes)), str(memory.descriptor)]
    return OwnProcess(words, pass_fds=(memory.descriptor,))


def reader(memory: SharedMemory) -> SharedStore:
    updater = Updater(find_strategy("downpour"), layout(BLOCK, rule=Rule("sgd", 1.0), batches=4, epochs=1), 2)
    return SharedStore(memory, 0, updater)


@pytest.mark.parametrize("places", [0, 2, 8])
def test_what_is_read_beside_a_writer_is_of_one_version(places):
    memory, into, seen = large(places), torch.zeros(BLOCK), set()
    store = reader(memory)
    with beside(WRITER, memory) as writer:
        try:
            deadline = time.monotonic() + 60
            while len(seen) < 100:
                assert time.monotonic() < deadline and writer.poll() is None
                version = store.read(into)
                assert into.min() == into.max() == number_of(version)
                seen.add(version)
        finally:
            writer.kill()
    memory.close()


class Overtaken(list[torch.Tensor]):
    """Buffers whose first reader is so slow that `versions` more are published before it gets what it asked for."""

    def __init__(self, memory: SharedMemory, buffers: list[torch.Tensor], versions: int) -> None:
        super().__init__(buffers)
        self.memory, self.versions = memory, versions

    def __getitem__(self, place):  # type: ignore[no-untyped-def, override]
        versions, self.versions = self.versions, 0
        for _ in range(versions):
            write_version(self.memory, self.memory.version + 1)
        return super().__getitem__(place)


@pytest.mark.parametrize(("places", "buffers"), [(0, "parameters"), (2, "parameters"), (2, "gradients")])
@pytest.mark.parametrize("versions", range(10))
def test_a_reader_that_is_overtaken_reads_again(places, buffers, versions):
    memory, into = large(places), torch.zeros(BLOCK)
    store = reader(memory)
    store.read(into)
    for version in range(1, 4 if buffers == "parameters" else 3):
        write_version(memory, version)
    setattr(memory, buffers, Overtaken(memory, getattr(memory, buffers), versions))
    version = store.read(into)
    assert into.min() == into.max() == number_of(version)
    memory.close()


def test_the_lock_is_one_process_s_and_never_a_dead_one_s():
    memory, waits = large(), []
    with beside(HOLDER, memory) as holder:
        assert holder.stdout.readline() == "has it\n"

        def kill_at_last() -> None:
            waits.append(1)
            if len(waits) == 5:
                holder.kill()

        lock = WriterLock(memory, kill_at_last)
        with lock:
            assert len(waits) >= 5
            with lock:  # who has it may take it once more
                pass
            assert lock.held == 1
    memory.close()


def test_an_epoch_that_ends_before_the_one_before_it_keeps_neither_s_place(stage):
    """Worker 1 has a batch of the first epoch in hand while worker 0 does all of the second."""
    s = stage(find_strategy("downpour"), 2, 4, 2)
    s.join(0, 1)
    s.poll()
    late = s.compute(1)
    assert late.epoch == 0
    for _ in range(20):
        s.step(0)
        s.poll()
    s.push(1, late)
    s.done[1] = late.sequence
    s.finish()
    s.assert_every_batch_counts_once()
    assert s.memory.epoch_parameters[0].any(), "the parameters at the end of the first epoch"
    assert torch.equal(s.memory.epoch_parameters[1], s.parameters)
