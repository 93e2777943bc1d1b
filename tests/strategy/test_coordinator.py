"""Whatever happens in whatever order, the coordinator loses nothing, counts nothing twice, and comes to an end."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.strategy.coordinator import Coordinator
from paceline.strategy.instructions import Apply, Compute, Drop, EpochDone
from paceline.strategy.strategy import PRESETS, preset

SHORT = {"local-sgd": {"fetch_every": 3, "push_every": 3}, "easgd": {"push_every": 3}}


class Chaos:
    """A driver without a clock: it does what it was told in any order, and kills workers as it pleases."""

    def __init__(self, coordinator: Coordinator, workers: int, seed: int) -> None:
        self.coordinator, self.workers, self.random = coordinator, workers, random.Random(seed)
        self.tasks: dict[int, list[Compute]] = {worker: [] for worker in range(workers)}
        self.payloads: dict[tuple[int, int], Compute] = {}
        self.updates: list[Apply] = []
        self.alive: set[int] = set()
        self.fates: dict[tuple[int, int], str] = {}
        self.epochs: list[int] = []

    def obey(self, instructions) -> None:
        for one in instructions:
            if isinstance(one, Compute):
                assert one.worker in self.alive, "a dead worker is given a task"
                assert self.has_place(one), "its payload would lie where one is that was not applied yet"
                self.tasks[one.worker].append(one)
            elif isinstance(one, Apply):
                self.updates.append(one)
            elif isinstance(one, Drop):
                task = self.payloads.pop((one.worker, one.sequence), None)
                self.count(task, "left out")
            elif isinstance(one, EpochDone):
                self.epochs.append(one.epoch)

    def has_place(self, task: Compute) -> bool:
        places = self.coordinator.places
        return places is None or (task.worker, task.sequence - places) not in self.payloads

    def count(self, task: Compute | None, fate: str) -> None:
        for batch in task.batches if task is not None else ():
            assert (task.epoch, batch) not in self.fates, f"batch {batch} of epoch {task.epoch} is counted twice"
            self.fates[task.epoch, batch] = fate

    def apply_next(self) -> None:
        order = self.updates.pop(0)
        assert order.update == self.coordinator.version + 1
        for contribution in order.contributions:
            assert contribution.staleness >= 0
            assert list(contribution.payloads) == sorted(contribution.payloads)
            for key in contribution.payloads:
                self.count(self.payloads.pop(key), "applied")
        self.obey(self.coordinator.applied(order.update))

    def step(self) -> None:
        choices = ["join"] * (len(self.alive) < self.workers) + ["die"] * (self.random.random() < 0.05)
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
            self.tasks[worker].clear()
            self.obey(self.coordinator.died(worker))
        elif chosen == "ready" and busy:
            worker = self.random.choice(busy)
            task = self.tasks[worker].pop(0)
            self.payloads[worker, task.sequence] = task
            if self.random.random() < 0.05:
                self.obey(self.coordinator.refused(worker, task.sequence))
            else:
                pulled = self.coordinator.version if task.version is None else task.version
                self.obey(self.coordinator.ready(worker, task.sequence, pulled))


@pytest.mark.parametrize("name", PRESETS)
@given(
    seed=st.integers(0, 10**6), workers=st.sampled_from([2, 4, 6]), ahead=st.sampled_from([1, 2]),
    places=st.sampled_from([None, 2]), own_pass=st.booleans(),
)  # fmt: skip
@settings(max_examples=25, deadline=None)
def test_nothing_is_lost_and_nothing_counted_twice(name, seed, workers, ahead, places, own_pass):
    strategy = preset(name, own_pass=own_pass, **SHORT.get(name, {}))
    coordinator = Coordinator(strategy, workers, batches=23, epochs=3, ahead=ahead, places=places)
    chaos = Chaos(coordinator, workers, seed)
    for _ in range(20_000):
        if coordinator.finished:
            break
        chaos.step()
    assert coordinator.finished, "it does not come to an end"
    assert len(chaos.fates) == 3 * 23 * (workers if own_pass else 1)
    assert chaos.epochs == [0, 1, 2]
    ledger = coordinator.ledger.summary()
    assert ledger.applied == sum(fate == "applied" for fate in chaos.fates.values())
    assert ledger.dropped + ledger.refused == sum(fate == "left out" for fate in chaos.fates.values())
    assert ledger.updates == coordinator.version
