"""Runs a strategy: turns what happened into what to do next.

It knows no clock, process, socket or tensor. A driver tells it that a worker joined or died, that a payload is
ready or was refused, that an update was applied; it answers with instructions, to be carried out in their order.
The same object drives a simulated cluster and real processes.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from paceline.strategy.batches import Batches
from paceline.strategy.group import Arrival, Group
from paceline.strategy.instructions import Apply, Compute, Contribution, Drop, EpochDone, Instruction
from paceline.strategy.ledger import Ledger, LedgerSummary
from paceline.strategy.rounds import Rounds
from paceline.strategy.strategy import Strategy


def _batches_of(arrival: Arrival) -> tuple[int, ...]:
    return arrival[0].batches


@dataclass(frozen=True)
class Position:
    """Where a coordinator stands, to go on from there: plain values only. What was given out counts as not done."""

    version: int
    opened: int
    done: dict[str, tuple[int, ...]]
    """Batches done of the epochs that are open."""
    sequences: dict[str, int]
    """Of every worker that is there or will be."""
    clocks: dict[str, int]
    ledger: LedgerSummary


class Coordinator:
    """`ahead` tasks are given to a worker that need not wait for its payload to be applied.

    With `places`, its payloads lie in so many places in turn, and one that is not applied yet keeps its own.
    """

    def __init__(
        self, strategy: Strategy, workers: int, batches: int, epochs: int, *, ahead: int = 1, places: int | None = None
    ) -> None:
        strategy.check(workers)
        self.strategy, self.workers, self.places = strategy, workers, places
        self.ahead = ahead if strategy.overlap else 1
        self.batches = Batches(batches, epochs, workers, strategy.own_pass)
        self.rounds = Rounds(strategy, workers, self.batches, self.ahead, places)
        self.members, self.groups = self.rounds.members, self.rounds.groups
        self.ledger = Ledger()
        self.issued = 0
        """Updates told to the driver; the last of them may not be applied yet."""
        self.epochs_done = 0
        """Epochs told to be done, in their order."""
        self._complete: set[int] = set()
        """Done, but for one before them."""
        self._enough = strategy.payloads_an_update(workers)
        self._collected: list[tuple[Group, list[Arrival]]] = []
        """Committed, for an update that waits for more."""
        self._in_flight: dict[int, list[tuple[Group, list[Arrival]]]] = {}

    @property
    def version(self) -> int:
        """Updates applied."""
        return self.rounds.version

    @property
    def finished(self) -> bool:
        return self.batches.finished

    @property
    def alive(self) -> int:
        return sum(member.alive for member in self.members.values())

    def waits_for(self, worker: int, sequence: int) -> bool:
        """Whether a payload is wanted when it comes, and not only dropped."""
        return (worker, sequence) in self.members[worker].group.open

    # What happened

    def joined(self, *workers: int) -> list[Instruction]:
        """Workers are there, for the first time or again. Those that begin together are told of together."""
        out: list[Instruction] = []
        new = [worker for worker in workers if self.rounds.enter(worker)]
        for worker in new:
            self.rounds.proceed(self.members[worker].group, out, worker)
        return self._settled(out)

    def died(self, worker: int, *, for_good: bool = False) -> list[Instruction]:
        """A worker is gone; what it did not finish goes to others. Unless it is `for_good` it will join again."""
        out: list[Instruction] = []
        member = self.members.get(worker)
        if member is not None and member.alive:
            self.ledger.returned += self.rounds.leave(worker)
        if for_good:
            self.rounds.forget(worker)
        if member is not None:
            self._commit_if_complete(member.group, out)
            self.rounds.proceed(member.group, out)
        return self._settled(out)

    def ready(self, worker: int, sequence: int, pulled: int) -> list[Instruction]:
        """A payload is there; `pulled` is the version it was computed on."""
        out: list[Instruction] = []
        task = self.rounds.finished(worker, sequence)
        if task is None:
            return [Drop(worker, sequence)]
        member = self.members[worker]
        group = member.group
        if (worker, sequence) in group.open:
            group.open.remove((worker, sequence))
            group.arrived.append((task, pulled))
            group.pushed.add(worker)
            member.kept.add(sequence)
            self._commit_if_complete(group, out)
        else:  # the round went on without it
            out.append(Drop(worker, sequence))
        self.rounds.proceed(group, out, worker)
        return self._settled(out)

    def refused(self, worker: int, sequence: int) -> list[Instruction]:
        """A payload that is no number is not applied; its batches count as done."""
        out: list[Instruction] = [Drop(worker, sequence)]
        task = self.rounds.finished(worker, sequence)
        if task is None:
            return out
        group = self.members[worker].group
        if (worker, sequence) in group.open:
            group.open.remove((worker, sequence))
            self.ledger.refused += len(task.batches)
            self._close(task, out)
        self._commit_if_complete(group, out)
        self.rounds.proceed(group, out, worker)
        return self._settled(out)

    def applied(self, update: int) -> list[Instruction]:
        """An update was made; its payloads need not be kept any longer."""
        out: list[Instruction] = []
        self.rounds.version = update
        self.ledger.updates += 1
        if update == self.strategy.warm_start:
            self.rounds.wake = True
        contributed = self._in_flight.pop(update)
        for _, arrivals in contributed:
            for task, _ in arrivals:
                self.ledger.applied[task.epoch] += len(task.batches)
                self.members[task.worker].kept.discard(task.sequence)
                self._close(task, out)
        for group, _ in contributed:
            group.applying -= 1
            if group.members:
                self.rounds.proceed(group, out)
        return self._settled(out)

    # Where it stands

    def restore(self, position: Position) -> None:
        """Goes on from `position`, before any worker joins."""
        self.rounds.version = self.issued = position.version
        self.batches.restore(position.opened, {int(epoch): list(done) for epoch, done in position.done.items()})
        self._complete = {int(e) for e, done in position.done.items() if len(done) == self.batches.an_epoch}
        self.epochs_done = min(map(int, position.done), default=position.opened)
        self.ledger = Ledger.of(position.ledger)
        for worker, sequence in position.sequences.items():
            member = self.rounds.expect(int(worker))
            member.sequence = sequence
            member.group.clock = position.clocks.get(str(member.group.number), 0)

    def adopt(self, tasks: Collection[Compute], alive: Collection[int]) -> None:
        """After `restore`: workers have these tasks already, or their payloads are ready. `alive` are there still."""
        self.rounds.adopt(tasks, alive)

    # From payloads to updates, and to the end of an epoch

    def _commit_if_complete(self, group: Group, out: list[Instruction]) -> None:
        if not self.rounds.is_complete(group):
            return
        if self.strategy.spares:
            self._drop_late(group, out)
        arrived = group.arrived
        if len(arrived) > 1:
            arrived.sort(key=_batches_of)
        self._collected.append((group, arrived))
        group.arrived = []
        group.pushed.clear()
        group.applying += 1
        self.rounds.advance_clock(group)
        if len(self._collected) >= self._enough:
            self._issue(out)

    def _drop_late(self, group: Group, out: list[Instruction]) -> None:
        """The round goes on without those it does not wait for. Their batches are done with: no epoch waits either."""
        for worker, sequence in sorted(group.open):
            task = self.members[worker].tasks[sequence]
            self.ledger.dropped += len(task.batches)
            out.append(Drop(worker, sequence))
            self._close(task, out)
        group.open.clear()

    def _issue(self, out: list[Instruction]) -> None:
        rounds, self._collected = self._collected, []
        contributions = []
        for group, arrivals in rounds:
            if len(arrivals) == 1:
                task, oldest = arrivals[0]
                payloads: tuple[tuple[int, int], ...] = ((task.worker, task.sequence),)
            else:
                oldest = min(pulled for _, pulled in arrivals)
                payloads = tuple((task.worker, task.sequence) for task, _ in arrivals)
            staleness = self.issued - oldest
            self.ledger.staleness[staleness] += 1
            contributions.append(Contribution(group.number, payloads, staleness))
        epoch = rounds[0][1][0][0].epoch
        self.issued += 1
        self._in_flight[self.issued] = rounds
        out.append(Apply(self.issued, tuple(contributions), epoch, self.batches.closed(epoch)))

    def _close(self, task: Compute, out: list[Instruction]) -> None:
        if self.batches.close(task.epoch, task.batches):
            self.rounds.wake = True
            self._complete.add(task.epoch)
            while self.epochs_done in self._complete:  # the one before it may take longer
                self._complete.remove(self.epochs_done)
                out.append(EpochDone(self.epochs_done))
                self.epochs_done += 1

    def _settled(self, out: list[Instruction]) -> list[Instruction]:
        """Who waited may go on; and when nobody has anything left to push, an update waits no longer for more."""
        rounds = self.rounds
        if rounds.wake:
            rounds.wake_waiting(out)
        if not rounds.outstanding and self._collected:
            self._issue(out)
        if self.strategy.bound is not None and not (rounds.outstanding or self._in_flight):
            rounds.pass_idle()
            rounds.wake_waiting(out)
        return out
