"""Whatever happens in whatever order, the coordinator loses nothing, counts nothing twice, and comes to an end."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.strategy.coordinator import Coordinator
from paceline.strategy.instructions import Apply, Compute, Drop, EpochDone
from paceline.strategy.position import Position
from paceline.strategy.presets import PRESETS, find_strategy
from paceline.strategy.strategy import Strategy

RARELY = {"fetch_every": 3, "push_every": 3}
SHORT = {"local-sgd": RARELY, "diloco": RARELY, "easgd": {"push_every": 3}}
BATCHES, EPOCHS = 23, 3


class Chaos:
    """A driver without a clock: it does what it was told in any order, and kills workers and server as it pleases."""

    def __init__(self, strategy: Strategy, workers: int, seed: int, *, refusals: float = 0.05, **how) -> None:
        self.strategy, self.workers, self.random, self.how = strategy, workers, random.Random(seed), how
        self.refusals = refusals
        self.coordinator = self.new_coordinator()
        self.tasks: dict[int, list[Compute]] = {worker: [] for worker in range(workers)}
        self.payloads: dict[tuple[int, int], Compute] = {}
        self.late: set[tuple[int, int]] = set()
        """Dropped before the coordinator was told that they are ready."""
        self.untold: set[tuple[int, int]] = set()
        """Ready when the server died."""
        self.updates: list[Apply] = []
        self.made: list[tuple[int, list[tuple[int, ...]]]] = []
        """The epoch of every update, and the batches it was made of."""
        self.alive: set[int] = set()
        self.fates: dict[tuple[int, int], str] = {}
        self.epochs: list[int] = []
        self.clocks: Counter[int] = Counter()
        self.last: Counter[int] = Counter()
        self.rounds: dict[tuple[int, int], int] = {}
        """The version that the tasks of a group's round are computed on."""

    def new_coordinator(self) -> Coordinator:
        return Coordinator(self.strategy, self.workers, BATCHES, EPOCHS, **self.how)

    def obey(self, instructions) -> None:
        for one in instructions:
            if isinstance(one, Compute):
                assert one.worker in self.alive, "a dead worker is given a task"
                assert self.has_place(one), "its payload would lie where one is that was not applied yet"
                self.tasks[one.worker].append(one)
                self.last[one.worker] = one.sequence
                if one.round is not None:
                    self.rounds.setdefault((self.group(one.worker), one.round), self.coordinator.version)
            elif isinstance(one, Apply):
                self.updates.append(one)
            elif isinstance(one, Drop):
                self.drop((one.worker, one.sequence))
            elif isinstance(one, EpochDone):
                self.epochs.append(one.epoch)
                assert all((one.epoch, batch) in self.fates for batch in range(self.coordinator.batches.per_epoch))

    def group(self, worker: int) -> int:
        return self.strategy.group_of(worker, self.workers)

    def has_place(self, task: Compute) -> bool:
        slots = self.coordinator.rounds.slots
        return slots is None or (task.worker, task.sequence - slots) not in self.payloads

    def drop(self, key: tuple[int, int]) -> None:
        if key in self.late:
            self.late.remove(key)
        elif key in self.payloads and key not in self.untold:
            self.count(self.payloads.pop(key), "left out")
        else:
            in_hand = (task for task in self.tasks[key[0]] if task.sequence == key[1])
            self.count(self.payloads.pop(key, None) or next(in_hand), "left out")
            self.late.add(key)

    def count(self, task: Compute, fate: str) -> None:
        for batch in task.batches:
            assert (task.epoch, batch) not in self.fates, f"batch {batch} of epoch {task.epoch} is counted twice"
            self.fates[task.epoch, batch] = fate

    def apply_next(self) -> None:
        order = self.updates.pop(0)
        assert order.update == self.coordinator.version + 1
        for contribution in order.contributions:
            assert contribution.staleness >= 0
            tasks = [self.payloads.pop(key) for key in ((task.worker, task.sequence) for task in contribution.tasks)]
            assert [task.batches for task in tasks] == sorted(task.batches for task in tasks)
            self.made.append((order.epoch, [task.batches for task in tasks]))
            self.clocks[contribution.group] += 1
            for task in tasks:
                self.count(task, "applied")
        self.obey(self.coordinator.applied(order.update))

    def step(self) -> None:
        choices = ["join"] * (len(self.alive) < self.workers)
        choices += ["die"] * (self.random.random() < 0.2) + ["server"] * (self.random.random() < 0.1)
        busy = [worker for worker in sorted(self.alive) if self.tasks[worker]]
        choices += ["ready"] * (4 * bool(busy)) + ["apply"] * (4 * bool(self.updates))
        chosen = self.random.choice(choices) if choices else "stuck"
        assert chosen != "stuck", "nobody has anything to do and the run is not over"
        if chosen == "apply":
            self.apply_next()
        elif chosen == "join":
            worker = self.random.choice([w for w in range(self.workers) if w not in self.alive])
            self.alive.add(worker)
            self.obey(self.coordinator.joined(worker))
        elif chosen == "die" and self.alive:
            worker = self.random.choice(sorted(self.alive))
            self.alive.discard(worker)
            self.late -= {(worker, task.sequence) for task in self.tasks[worker]}
            self.tasks[worker].clear()
            self.obey(self.coordinator.died(worker))
        elif chosen == "server":
            self.replace_server()
        elif chosen == "ready":
            worker = self.random.choice(busy)
            task = self.tasks[worker].pop(0)
            self.deliver(task)

    def deliver(self, task: Compute) -> None:
        key = task.worker, task.sequence
        if key not in self.late:
            self.payloads[key] = task
        if self.random.random() < self.refusals:
            self.obey(self.coordinator.refused(*key))
        else:
            self.obey(self.coordinator.ready(*key, self.pulled(task)))

    def pulled(self, task: Compute) -> int:
        """The version that a task computed on: its round's, or the newest."""
        return self.coordinator.version if task.round is None else self.rounds[self.group(task.worker), task.round]

    def replace_server(self) -> None:
        """What is applied, and what workers have in hand or ready, is known to the next one, and nothing else."""
        before, self.updates = self.coordinator, []
        self.coordinator = coordinator = self.new_coordinator()
        an_epoch, begun = coordinator.batches.per_epoch, [epoch for epoch, _ in self.fates]
        epochs = range(len(self.epochs), max(begun, default=-1) + 1)
        done = {epoch: tuple(b for b in range(an_epoch) if (epoch, b) in self.fates) for epoch in epochs}
        coordinator.restore(
            Position(
                version=before.version,
                opened=max(done, default=len(self.epochs) - 1) + 1,
                done={str(epoch): batches for epoch, batches in done.items()},
                sequences={str(worker): self.last[worker] for worker in range(self.workers)},
                clocks={str(group): clock for group, clock in self.clocks.items()},
                ledger=before.ledger.summary(),
            )
        )
        in_hand = [task for tasks in self.tasks.values() for task in tasks if self.is_open(task)]
        ready = list(self.payloads.values())
        busy = {task.worker for task in [*in_hand, *ready]} & self.alive
        coordinator.adopt([*in_hand, *ready], busy)
        self.untold = {(task.worker, task.sequence) for task in ready}
        for task in ready:
            self.untold.remove((task.worker, task.sequence))
            self.obey(coordinator.ready(task.worker, task.sequence, self.pulled(task)))
        self.obey(coordinator.joined(*sorted(self.alive - busy)))

    def is_open(self, task: Compute) -> bool:
        return (task.worker, task.sequence) not in self.late

    def run(self) -> None:
        for _ in range(20_000):
            if self.coordinator.finished:
                return
            self.step()
        pytest.fail("it does not come to an end")


@pytest.mark.parametrize("name", PRESETS)
@given(
    seed=st.integers(0, 10**6), workers=st.sampled_from([2, 4, 6]), ahead=st.sampled_from([1, 2]),
    slots=st.sampled_from([None, 2]), full_pass_per_worker=st.booleans(),
)  # fmt: skip
@settings(max_examples=25, deadline=None)
def test_nothing_is_lost_and_nothing_counted_twice(name, seed, workers, ahead, slots, full_pass_per_worker):
    strategy = find_strategy(name, full_pass_per_worker=full_pass_per_worker, **SHORT.get(name, {}))
    chaos = Chaos(strategy, workers, seed, ahead=ahead, slots=slots)
    chaos.run()
    assert len(chaos.fates) == EPOCHS * BATCHES * (workers if full_pass_per_worker else 1)
    assert chaos.epochs == list(range(EPOCHS))
    ledger = chaos.coordinator.ledger.summary()
    assert ledger.applied == sum(fate == "applied" for fate in chaos.fates.values())
    assert ledger.dropped + ledger.refused == sum(fate == "left out" for fate in chaos.fates.values())
    assert ledger.updates == chaos.coordinator.version


def undisturbed(strategy: Strategy, workers: int) -> list[tuple[int, list[tuple[int, ...]]]]:
    """What the updates are made of when nobody dies."""
    chaos = Chaos(strategy, workers, 0, refusals=0.0)
    chaos.alive = set(range(workers))
    chaos.obey(chaos.coordinator.joined(*range(workers)))
    while not chaos.coordinator.finished:
        while chaos.updates:
            chaos.apply_next()
        for worker in range(workers):
            if chaos.tasks[worker]:
                chaos.deliver(chaos.tasks[worker].pop(0))
    return chaos.made


@pytest.mark.parametrize("name", ["sync", "towers", "local-sgd"])
@given(
    seed=st.integers(0, 10**6), workers=st.sampled_from([1, 2, 5]), slots=st.sampled_from([None, 2]),
    full_pass_per_worker=st.booleans(),
)  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_a_synchronous_update_is_made_of_the_same_batches_whoever_dies(
    name, seed, workers, slots, full_pass_per_worker
):
    strategy = find_strategy(name, full_pass_per_worker=full_pass_per_worker, **SHORT.get(name, {}))
    chaos = Chaos(strategy, workers, seed, refusals=0.0, slots=slots)
    chaos.alive = set(range(workers))
    chaos.obey(chaos.coordinator.joined(*range(workers)))
    chaos.run()
    assert chaos.made == undisturbed(strategy, workers)
    assert chaos.coordinator.ledger.applied.total() == len(chaos.fates)


def test_a_round_with_a_backup_worker_does_not_wait_for_the_slowest():
    coordinator = Coordinator(find_strategy("backup"), 3, 12, 1)
    tasks = [one for one in coordinator.joined(0, 1, 2) if isinstance(one, Compute)]
    assert [task.worker for task in tasks] == [0, 1, 2]
    assert not any(isinstance(one, Apply) for one in coordinator.ready(0, tasks[0].sequence, 0))
    said = coordinator.ready(2, tasks[2].sequence, 0)
    assert [one for one in said if isinstance(one, Drop)] == [Drop(1, tasks[1].sequence, tasks[1])]
    (update,) = [one for one in said if isinstance(one, Apply)]
    assert [task.worker for task in update.contributions[0].tasks] == [0, 2]
