"""Runs a strategy: turns what happened into what to do next.

It knows no clock, process, socket or tensor. A driver tells it that a worker joined or died, that a payload is
ready or was refused, that an update was applied; it answers with instructions, to be carried out in their order.
The same object drives a simulated cluster and real processes.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from dataclasses import dataclass, field
from itertools import chain

from paceline.strategy.batches import Batches
from paceline.strategy.instructions import Apply, Compute, Contribution, Drop, EpochDone, Instruction
from paceline.strategy.ledger import Ledger, LedgerSummary
from paceline.strategy.strategy import Strategy

Arrival = tuple[Compute, int]
"""A finished task, and the version its payload was computed on."""


def _worker_of(arrival: Arrival) -> int:
    return arrival[0].worker


@dataclass(slots=True)
class Member:
    """A worker as the coordinator sees it."""

    group: Group
    sequence: int = 0
    """Tasks given so far, in all its lives."""
    steps: int = 0
    """Steps since the last fetch; 0: the next step fetches."""
    tasks: dict[int, Compute] = field(default_factory=dict)
    """Given and not ready yet, by sequence."""
    alive: bool = False


@dataclass(slots=True)
class Group:
    """Workers that wait for each other. A round is a task for each; its payloads make one contribution."""

    number: int
    members: list[int] = field(default_factory=list)
    """Alive, in the order of workers."""
    clock: int = 0
    """Rounds committed."""
    epoch: int = 0
    """Of the round under way."""
    open: set[tuple[int, int]] = field(default_factory=set)
    """Tasks (worker, sequence) that the round waits for."""
    arrived: list[Arrival] = field(default_factory=list)
    pushed: set[int] = field(default_factory=set)
    """Whose payloads these are."""
    applying: int = 0
    """Contributions committed and not applied yet."""


@dataclass(frozen=True)
class Position:
    """Where a coordinator stands, to go on from there: plain values only. What was given out counts as not done."""

    version: int
    opened: int
    done: dict[str, tuple[int, ...]]
    """Batches done of the epochs that are open."""
    sequences: dict[str, int]
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
        self.strategy, self.workers = strategy, workers
        self.ahead, self.places = ahead if strategy.overlap else 1, places
        self.batches = Batches(batches, epochs, workers, strategy.own_pass)
        self.ledger = Ledger()
        self.members: dict[int, Member] = {}
        self.groups: dict[int, Group] = {}
        self.version = 0
        """Updates applied."""
        self.issued = 0
        """Updates told to the driver; the last of them may not be applied yet."""
        self._collected: list[tuple[Group, list[Arrival]]] = []
        """Committed, for an update that waits for more."""
        self._enough = strategy.payloads_an_update(workers)
        self._alone = strategy.groups is None
        self._restrained = bool(strategy.warm_start) or strategy.bound is not None
        """Whether a group may have to wait although there are batches."""
        self._in_flight: dict[int, list[tuple[Group, list[Arrival]]]] = {}
        self._outstanding = 0
        """Tasks given and not ready."""
        self._clocks: Counter[int] = Counter()
        """How many groups with members stand at which clock, where there is a bound on how far they may part."""
        self._waiting: dict[int, Group] = {}
        """Groups that could begin a round but for batches, their bound or the warm start."""
        self._wake = False
        """Whether something happened that one of them may have waited for."""
        self._epochs_done = 0
        """Epochs told to be done, in their order."""
        self._complete: set[int] = set()
        """Done, but for one before them."""
        self._first_alive: int | None = None

    # What happened

    def joined(self, *workers: int) -> list[Instruction]:
        """Workers are there, for the first time or again. Those that begin together are told of together."""
        out: list[Instruction] = []
        new = [worker for worker in workers if self._enter(worker)]
        for worker in new:
            self._proceed(self.members[worker].group, out, worker)
        return out

    def died(self, worker: int, *, for_good: bool = False) -> list[Instruction]:
        """A worker is gone; what it did not finish goes to others. With `for_good` so does what it had before it."""
        out: list[Instruction] = []
        member = self.members.get(worker)
        if for_good:
            self.batches.orphan(worker)
        if member is not None and member.alive:
            group = member.group
            member.alive = False
            group.members.remove(worker)
            if worker == self._first_alive:
                self._first_alive = min((w for w, m in self.members.items() if m.alive), default=None)
            for task in sorted(member.tasks.values(), reverse=True):
                group.open.discard((worker, task.sequence))
                self.batches.put_back(task.epoch, task.batches)
                self.ledger.returned += len(task.batches)
                self._outstanding -= 1
            member.tasks.clear()
            if not group.members:
                if self.strategy.bound is not None:
                    self._leave_clock(group.clock)
                self._waiting.pop(group.number, None)
            self._wake = True
            self._commit_if_complete(group, out)
            self._proceed(group, out)
        return self._settled(out)

    def ready(self, worker: int, sequence: int, pulled: int) -> list[Instruction]:
        """A payload is there; `pulled` is the version it was computed on."""
        out: list[Instruction] = []
        task = self._finished(worker, sequence)
        if task is None:  # of a life that was given up: another has its batches
            return [Drop(worker, sequence)]
        group = self.members[worker].group
        if (worker, sequence) in group.open:
            group.open.remove((worker, sequence))
            group.arrived.append((task, pulled))
            group.pushed.add(worker)
            self._commit_if_complete(group, out)
        else:  # the round went on without it
            self.ledger.dropped += len(task.batches)
            out.append(Drop(worker, sequence))
            self._close(task, out)
        self._proceed(group, out, worker)
        return self._settled(out)

    def refused(self, worker: int, sequence: int) -> list[Instruction]:
        """A payload that is no number is not applied; its batches count as done."""
        task = self._finished(worker, sequence)
        out: list[Instruction] = [Drop(worker, sequence)]
        if task is None:
            return out
        group = self.members[worker].group
        group.open.discard((worker, sequence))
        self.ledger.refused += len(task.batches)
        self._close(task, out)
        self._commit_if_complete(group, out)
        self._proceed(group, out, worker)
        return self._settled(out)

    def applied(self, update: int) -> list[Instruction]:
        """An update was made; its payloads need not be kept any longer."""
        out: list[Instruction] = []
        self.version = update
        self.ledger.updates += 1
        if update == self.strategy.warm_start:
            self._wake = True
        rounds = self._in_flight.pop(update)
        for _, arrivals in rounds:
            for task, _ in arrivals:
                self.ledger.applied[task.epoch] += len(task.batches)
                self._close(task, out)
        for group, _ in rounds:
            group.applying -= 1
            if group.members:
                self._proceed(group, out)
        return self._settled(out)

    @property
    def finished(self) -> bool:
        return self.batches.finished

    @property
    def alive(self) -> int:
        return sum(member.alive for member in self.members.values())

    # Where it stands

    def restore(self, position: Position) -> None:
        """Goes on from `position`, before any worker joins."""
        self.version = self.issued = position.version
        self.batches.restore(position.opened, {int(epoch): list(done) for epoch, done in position.done.items()})
        self._complete = {int(e) for e, done in position.done.items() if len(done) == self.batches.an_epoch}
        self._epochs_done = min(map(int, position.done), default=position.opened)
        self.ledger = Ledger.of(position.ledger)
        for worker, sequence in position.sequences.items():
            member = self._member(int(worker))
            member.sequence = sequence
            member.group.clock = position.clocks.get(str(member.group.number), 0)

    def adopt(self, task: Compute) -> None:
        """After `restore`: a worker that is alive has this task already, and may have its payload ready."""
        self._enter(task.worker)
        member = self.members[task.worker]
        member.sequence = max(member.sequence, task.sequence)
        member.tasks[task.sequence] = task
        member.group.open.add((task.worker, task.sequence))
        member.group.epoch = task.epoch
        self._outstanding += 1
        self.batches.open_until(task.epoch)
        self.batches.take_these(task.epoch, task.batches)

    # How a round goes

    def _member(self, worker: int) -> Member:
        if worker not in self.members:
            number = self.strategy.group_of(worker, self.workers)
            group = self.groups.setdefault(number, Group(number))
            self.members[worker] = Member(group)
        return self.members[worker]

    def _enter(self, worker: int) -> bool:
        member = self._member(worker)
        if member.alive:
            return False
        group = member.group
        member.alive, member.steps = True, 0
        if self._first_alive is None or worker < self._first_alive:
            self._first_alive = worker
        if not group.members and self.strategy.bound is not None:
            group.clock = max(group.clock, min(self._clocks, default=0))  # who was away need not catch up
            self._clocks[group.clock] += 1
        insort(group.members, worker)
        return True

    def _finished(self, worker: int, sequence: int) -> Compute | None:
        member = self.members.get(worker)
        task = member.tasks.pop(sequence, None) if member is not None else None
        if task is not None:
            self._outstanding -= 1
        return task

    def _proceed(self, group: Group, out: list[Instruction], free: int | None = None) -> None:
        """Gives the group's workers their next tasks, if it is time and there are any; `free` has just become so."""
        if self._alone:
            wants = bool(group.members) and self._proceed_alone(group, group.members[0], out)
        elif group.open and self.strategy.spares:
            wants = False
            if free is not None and not self.members[free].tasks and free not in group.pushed:
                self._give(free, group.epoch, self.strategy.push_every, self.version, out)  # the round goes on
        else:
            begins = bool(group.members) and not (group.open or group.arrived or group.applying)
            wants = begins and not (self._may_begin(group) and self._begin_round(group, out))
        if wants:
            self._waiting[group.number] = group
        elif self._waiting:
            self._waiting.pop(group.number, None)

    def _proceed_alone(self, group: Group, worker: int, out: list[Instruction]) -> bool:
        """A worker that is its own group; whether it wants a task it cannot have yet."""
        member = self.members[worker]
        tasks = member.tasks
        while len(tasks) < self.ahead and (self.strategy.overlap or not group.applying):
            if self.places is not None and not self._has_place(member, self.places):
                return False  # it goes on when its payload is applied
            may = not self._restrained or self._may_begin(group)
            epoch = self.batches.next_epoch(worker) if may else None
            if epoch is None or not self._give(worker, epoch, self.strategy.push_every, None, out):
                return True
        return False

    def _has_place(self, member: Member, places: int) -> bool:
        """Whether the payload that was in the place of the next one is done with."""
        before = member.sequence + 1 - places
        if before in member.tasks:
            return False
        if not member.group.applying:
            return True
        kept = chain(self._collected, *self._in_flight.values())
        return not any(task.sequence == before for group, a in kept if group is member.group for task, _ in a)

    def _may_begin(self, group: Group) -> bool:
        if self.version < self.strategy.warm_start and group.members[0] != self._first_alive:
            return False
        bound = self.strategy.bound
        return bound is None or group.clock - min(self._clocks) <= bound

    def _begin_round(self, group: Group, out: list[Instruction]) -> bool:
        """Whether there are batches for a round."""
        epoch = next((e for w in group.members if (e := self.batches.next_epoch(w)) is not None), None)
        if epoch is None:
            return False
        group.epoch = epoch
        self._give_round(group, epoch, out)
        return bool(group.open)

    def _give_round(self, group: Group, epoch: int, out: list[Instruction]) -> None:
        """A task for every member that has none, all of one epoch and from one version, evenly at an epoch's end."""
        most = self.strategy.push_every
        if most > 1:
            most = min(most, -(-self.batches.remaining(epoch) // len(group.members)))
        for worker in group.members:
            if not self.members[worker].tasks:
                self._give(worker, epoch, most, self.version, out)

    def _give(self, worker: int, epoch: int, most: int, version: int | None, out: list[Instruction]) -> bool:
        member = self.members[worker]
        batches = self.batches.take(worker, epoch, most)
        if not batches:
            return False
        member.sequence += 1
        task = Compute(worker, member.sequence, epoch, batches, self._fetches(member, len(batches)), version)
        member.tasks[task.sequence] = task
        member.group.open.add((worker, task.sequence))
        self._outstanding += 1
        out.append(task)
        return True

    def _fetches(self, member: Member, steps: int) -> tuple[int, ...]:
        """Before which of a task's steps the parameters are fetched."""
        every = self.strategy.fetch_every
        if every == 1:
            return tuple(range(steps))
        if self.strategy.exchange == "parameters":
            member.steps = 0  # what local steps change is told from where they began
        positions = []
        for position in range(steps):
            if not member.steps:
                positions.append(position)
            member.steps += 1
            if member.steps == every:
                member.steps = 0
        return tuple(positions)

    def _commit_if_complete(self, group: Group, out: list[Instruction]) -> None:
        if not group.arrived:
            return
        if self.strategy.spares:
            wanted = min(self.workers - self.strategy.spares, len(group.members))
            if group.open and len(group.arrived) < wanted:
                return
            group.open.clear()  # the others are too late
        elif group.open and not self._alone:
            return
        arrived = group.arrived
        if len(arrived) > 1:
            arrived.sort(key=_worker_of)
        self._collected.append((group, arrived))
        group.arrived = []
        group.pushed.clear()
        group.applying += 1
        self._advance_clock(group)
        if len(self._collected) >= self._enough:
            self._issue(out)

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

    def _advance_clock(self, group: Group) -> None:
        if self.strategy.bound is not None and group.members:
            self._leave_clock(group.clock)
            self._clocks[group.clock + 1] += 1
        group.clock += 1

    def _leave_clock(self, clock: int) -> None:
        self._clocks[clock] -= 1
        if not self._clocks[clock]:
            del self._clocks[clock]
            self._wake = True

    def _close(self, task: Compute, out: list[Instruction]) -> None:
        if self.batches.close(task.epoch, task.batches):
            self._wake = True
            self._complete.add(task.epoch)
            while self._epochs_done in self._complete:  # the one before it may take longer
                self._complete.remove(self._epochs_done)
                out.append(EpochDone(self._epochs_done))
                self._epochs_done += 1

    def _settled(self, out: list[Instruction]) -> list[Instruction]:
        """Who waited may go on; and when nobody has anything left to push, an update waits no longer for more."""
        self._wake_waiting(out)
        if not self._outstanding and self._collected:
            self._issue(out)
        if self.strategy.bound is not None and not (self._outstanding or self._in_flight):
            self._pass_idle()
            self._wake_waiting(out)
        return out

    def _wake_waiting(self, out: list[Instruction]) -> None:
        while self._wake:
            self._wake = False
            for group in list(self._waiting.values()):
                self._proceed(group, out)

    def _pass_idle(self) -> None:
        """Who has no batches left, after others did some of its own, is not waited for: its clock goes along."""
        idle: list[Group] = []
        held: list[Group] = []
        for group in self._waiting.values():
            has_batches = any(self.batches.next_epoch(worker) is not None for worker in group.members)
            (held if has_batches else idle).append(group)
        slowest = min((group.clock for group in held), default=0)
        for group in idle:
            if group.clock < slowest:
                self._clocks[slowest] += 1
                self._leave_clock(group.clock)
                group.clock = slowest
