"""The processes that make an update together: who asks for what, who dies in between, and what is refused."""

from __future__ import annotations

import dataclasses
import os
import signal
import time

import pytest
import torch

from paceline.data.dataset import Dataset
from paceline.errors import InputError, PacelineError, StrategyError
from paceline.step.build import load_data
from paceline.strategy.instructions import Apply, Contribution
from paceline.strategy.server import Given, Payload
from paceline.strategy.strategy import preset
from paceline.testing import Fault
from paceline.train import local
from paceline.train.checkpoint import load_checkpoint
from paceline.train.local import child, preparation, shard_crew, shard_orders
from paceline.train.local.crew import Patience
from paceline.train.local.doorbell import Doorbell
from paceline.train.local.memory import Memory
from paceline.train.local.preparation import share_machine, sizes_of
from paceline.train.local.settings import Settings
from paceline.train.local.shard_crew import ShardCrew
from paceline.train.local.shard_process import ShardLoop
from paceline.train.local.shards import Shards
from paceline.train.local.words import LINE, Shard
from tests.strategy.flat_vectors import layout, vector
from tests.train.local.small import assert_nothing_is_left, workload
from tests.train.local.test_faults import BATCHES, SLOW

STRATEGY = preset("delay-compensated")


class Stage:
    """A server and its shards in one process; each is told when to do what."""

    def __init__(self, shards: int = 3, workers: int = 2) -> None:
        where = layout(1000)
        sizes = sizes_of(STRATEGY, where, workers, record_events=False, shards=shards)
        self.memory = Memory(sizes)
        self.bells = [os.eventfd(0, os.EFD_NONBLOCK) for _ in range(workers + 1 + shards)]
        self.settings = Settings(
            parent=os.getpid(), memory=self.memory.descriptor, wake_launcher=self.bells[0], wake_server=self.bells[1],
            wake_workers=tuple(self.bells[2 : workers + 2]), wake_shards=tuple(self.bells[workers + 2 :]), sizes=sizes,
            strategy=STRATEGY, layout=where, workload=workload(), workers=workers, threads=1, number=workers, life=1,
            device="cpu", cache="", search_path=(), on_bad_gradient="stop",
        )  # fmt: skip
        for worker in range(workers):
            for place in (0, 1):
                self.memory.payloads[worker][place].copy_(vector(1000, 10 * worker + place))

    def server(self, life: int) -> Shards:
        bell = Doorbell(self.memory, self.settings.workers, self.settings.wake_server)
        return Shards(self.memory, dataclasses.replace(self.settings, life=life), bell, lambda: None)

    def shard(self, number: int) -> ShardLoop:
        return ShardLoop(dataclasses.replace(self.settings, number=self.settings.workers + number), self.memory)

    def order(self, worker: int, sequence: int, update: int = 1) -> tuple[Apply, list[Given]]:
        kept = self.memory.corrections[worker]
        payload = Payload(self.memory.payloads[worker][sequence % 2], 8, 1)
        made = Apply(update, (Contribution(worker, ((worker, sequence),), 3),), 0, update - 1)
        return made, [Given([payload], self.memory.pulled[worker][sequence % 2], kept[0], kept[1])]

    def close(self) -> None:
        for bell in self.bells:
            os.close(bell)
        self.memory.close()


@pytest.fixture
def stage():
    made = Stage()
    yield made
    made.close()


def test_an_order_is_read_as_it_was_written(stage):
    memory = stage.memory
    kept = memory.corrections
    payloads = [Payload(memory.payloads[w][s % 2], 8 + w, s) for w, s in ((0, 6), (1, 7), (0, 5))]
    contributions = (Contribution(1, ((0, 6), (1, 7)), 4), Contribution(0, ((0, 5),), 0))
    given = [
        Given(payloads[:2], memory.pulled[0][0], kept[1][1], kept[1][0]),
        Given(payloads[2:], memory.pulled[0][1], kept[0][1], kept[0][1]),  # a group that is named twice
    ]
    order = Apply(12, contributions, 3, 40)
    shard_orders.write(memory, order, given)
    read, found = shard_orders.read(memory)
    assert read == order
    for one, expected in zip(found, given, strict=True):
        assert one.backup is expected.backup and one.kept is expected.kept and one.kept_after is expected.kept_after
        assert [(p.values.data_ptr(), p.samples, p.steps) for p in one.payloads] == [
            (p.values.data_ptr(), p.samples, p.steps) for p in expected.payloads
        ]


def test_the_longest_order_has_room(stage):
    """Every place of every slot is a group's only payload."""
    keys = [(worker, sequence) for worker in range(2) for sequence in (4, 5)]
    order = Apply(9, tuple(Contribution(w, ((w, s),), 1) for w, s in keys), 0, 0)
    kept = stage.memory.corrections
    given = [Given([Payload(stage.memory.payloads[w][s % 2], 8, 1)], None, kept[w][0], kept[w][1]) for w, s in keys]
    shard_orders.write(stage.memory, order, given)
    assert shard_orders.read(stage.memory)[0] == order


def test_each_shard_makes_its_own_piece_once(stage):
    server, shards = stage.server(1), [stage.shard(number) for number in (1, 2)]
    assert not any(shard.look() for shard in shards), "nothing was asked for"
    server.begin(*stage.order(0, 1))
    new = stage.memory.parameters[1]
    assert shards[0].look() and not shards[0].look()
    assert not server._are_done()
    assert new[:320].abs().sum() == 0 and new[320:640].abs().min() > 0 and new[640:].abs().sum() == 0
    assert shards[1].look()
    server.wait()
    assert new[640:].abs().min() > 0
    assert stage.memory.corrections[0][1]["squares"][320:].min() > 0


def test_what_was_done_for_a_dead_server_does_not_count_for_the_next(stage):
    shard = stage.shard(1)
    stage.server(1).begin(*stage.order(0, 1))
    shard.look()
    of_the_dead = stage.memory.parameters[1][320:640].clone()
    successor = stage.server(2)
    successor.begin(*stage.order(1, 1))  # the same version, of another payload
    assert successor.words[LINE + Shard.DONE] != successor.order
    assert shard.look()
    assert successor.words[LINE + Shard.DONE] == successor.order
    assert not torch.equal(stage.memory.parameters[1][320:640], of_the_dead)


def test_an_order_that_is_being_written_is_not_carried_out(stage, monkeypatch):
    server, shard = stage.server(1), stage.shard(1)
    server.begin(*stage.order(0, 1))
    read = shard_orders.read

    def overtaken(memory):
        found = read(memory)
        memory.shards[Shard.ORDER] = 0  # its server died, and the next begins to write
        return found

    monkeypatch.setattr(shard_orders, "read", overtaken)
    assert shard.look()
    assert stage.memory.parameters[1].abs().sum() == 0
    assert not shard.look(), "there is nothing to do until it is whole"


def test_who_replaces_a_shard_makes_the_piece_that_is_missing(stage):
    server = stage.server(1)
    server.begin(*stage.order(0, 1))
    for number in (1, 2):
        assert stage.shard(number).look()
        assert not stage.shard(number).look(), "the piece is there already"
    server.wait()


class Dying:
    """A process that is gone at once."""

    def __init__(self, module: str, settings: Settings) -> None:
        self.process = self
        self.returncode = -signal.SIGSEGV

    def ended(self) -> bool:
        return True

    def how_it_ended(self) -> str:
        return "was ended by SIGSEGV"


def test_a_shard_that_always_dies_ends_the_run(stage, monkeypatch):
    monkeypatch.setattr(shard_crew, "Child", Dying)
    notes = []
    crew = ShardCrew(stage.memory, stage.settings, Patience())
    crew.start()
    with pytest.raises(PacelineError, match=r"shard 1 of the server was ended by SIGSEGV, 5 times in a row without"):
        for _ in range(child.DEATHS):
            crew.look(time.monotonic_ns(), lambda *note: notes.append(note))
    assert notes[0] == ("shard died", None, "shard 1 of the server was ended by SIGSEGV")


def test_what_a_shard_says_before_it_ends_is_passed_on(stage, monkeypatch):
    monkeypatch.setattr(shard_crew, "Child", Dying)
    crew = ShardCrew(stage.memory, stage.settings, Patience())
    crew.start()
    stage.memory.tell(2 + 2, "out of memory")
    with pytest.raises(PacelineError, match="shard 2 of the server: out of memory"):
        crew.look(time.monotonic_ns(), lambda *_: None)


def test_kills_of_all_kinds_lose_nothing_and_count_nothing_twice():
    faults = (Fault("kill", 40, shard=1), Fault("kill", 90, 1), Fault("kill", 120), Fault("kill", 150, shard=1))
    run = local.run(workload(epochs=20), "downpour", workers=2, shards=2, faults=(*faults, *SLOW))
    d = run.distribution
    assert d.ledger.applied_by_epoch == (BATCHES,) * 20
    assert (d.ledger.dropped, d.ledger.refused) == (0, 0)
    assert sorted(f.what for f in d.faults) == ["died", "server died", "shard died", "shard died"]
    assert any(f.note.startswith("shard 1 of the server was ended by SIGKILL") for f in d.faults)
    assert d.shards == 2 and "server of 2 shards" in run.step.reason
    assert {"server", "server shard 1"} <= {span.who for span in run.trace.spans}
    assert run.test_accuracy > 0.85
    assert_nothing_is_left()


def test_a_shard_that_hangs_is_replaced_within_the_timeout():
    fault = Fault("hang", 30, shard=1)
    run = local.run(workload(epochs=20), "sync", workers=2, shards=2, worker_timeout_s=1.0, faults=(fault,))
    assert [f.what for f in run.distribution.faults] == ["shard hung"]
    assert run.distribution.ledger.applied_by_epoch == (BATCHES,) * 20
    assert_nothing_is_left()


@pytest.mark.slow
def test_a_resumed_run_may_have_another_number_of_shards(tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    made = {"optimizer": "momentum", "lr": 0.05}
    local.run(workload(epochs=3, **made), "sync", workers=2, out=whole)
    local.run(workload(epochs=1, **made), "sync", workers=2, out=parts, shards=2)
    assert local.resume(parts, changes={"epochs": 2}).distribution.shards == 2
    assert local.resume(parts, changes={"epochs": 3}, shards=1).distribution.shards == 1
    a, b = load_checkpoint(whole).parameters, load_checkpoint(parts).parameters
    assert all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.slow
def test_shards_take_what_a_group_has_added_up_among_itself(tmp_path):
    made = workload(optimizer="momentum", lr=0.05)
    runs = [
        local.run(made, "sync", workers=2, shards=shards, collective="gloo", out=tmp_path / str(shards))
        for shards in (1, 2)
    ]
    assert all(run.distribution.sums > 0 for run in runs)
    assert runs[0].distribution.ledger == runs[1].distribution.ledger
    a, b = (load_checkpoint(tmp_path / str(shards)).parameters for shards in (1, 2))
    assert all(torch.equal(a[name], b[name]) for name in a), "the sum of two is the same in any order"


def test_with_several_shards_workers_leave_updates_to_the_server():
    assert sizes_of(preset("downpour"), layout(1000), 2, record_events=False).own_updates
    assert not sizes_of(preset("downpour"), layout(1000), 2, record_events=False, shards=2).own_updates


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return load_data(workload())


@pytest.mark.parametrize(
    ("cores", "shards", "most"), [(16, 1, 8), (16, 2, 7), (16, 4, 6), (4, 3, 1)], ids=lambda value: str(value)
)
def test_shards_count_in_the_division_of_cores(cores, shards, most, digits, monkeypatch):
    monkeypatch.setattr(preparation, "available_cores", lambda: cores)
    monkeypatch.setattr(preparation, "choose_threads", lambda *_: 99)
    share = share_machine(workload(), digits, 2, shards)
    assert share.threads == most
    assert [("2 workers with 1 thread each and 3 server shards share 4 cores" in n) for n in share.notes] == (
        [True] if cores == 4 else []
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shards": 0}, "shards=0 should be a whole number of at least 1"),
        ({"shards": 10_000}, r"shards=10000 are too many for [\d,]+ parameters: they make at most \d+ pieces"),
        ({"shards": 2, "faults": (Fault("kill", 1, shard=2),)}, "kill is a fault of shard 2: there is none, only 2"),
        ({"faults": (Fault("kill", 1, shard=1),)}, "kill is a fault of shard 1: there is none, only 1"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_starts(options, message, tmp_path):
    with pytest.raises(StrategyError, match=message) as caught:
        local.run(workload(), "sync", workers=2, out=tmp_path / "run", **options)
    assert caught.value.exit_code == InputError.exit_code == 2
    del caught
    assert not (tmp_path / "run").exists()
    assert_nothing_is_left()
