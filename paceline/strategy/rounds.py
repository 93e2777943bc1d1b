"""Which worker is given which batches and when, and when a group has all parts of a round.

A synchronous round has a part for each worker of its group and is complete when all parts are in. Which parts these are
does not depend on who is alive: what a dead worker had in hand is done in the same round by another, or by the process
that replaces it. So an update is made of the same gradients whatever happens.

Workers that exchange fragments are in the next round already when one dies, so nobody could do its part: the round
continues without it, and its batches are done in a later one.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable

from paceline.strategy.batches import Batches
from paceline.strategy.group import Group, Member, Round
from paceline.strategy.instructions import Compute, Instruction
from paceline.strategy.position import Position
from paceline.strategy.staleness_bound import StalenessBound
from paceline.strategy.strategy import Strategy


class Rounds:
    def __init__(self, strategy: Strategy, workers: int, batches: Batches, ahead: int, slots: int | None) -> None:
        self.strategy, self.workers, self.batches = strategy, workers, batches
        self.ahead, self.slots = ahead if batches.turns == 1 else 1, slots  # the next turn needs this one's update
        self.members: dict[int, Member] = {}
        self.groups: dict[int, Group] = {}
        self.version = 0
        """Updates applied."""
        self.outstanding = 0
        """Tasks given and not ready."""
        self.wake = False
        """Whether something happened that a waiting group may have waited for."""
        self._waiting: dict[int, Group] = {}
        """Groups that could begin a round but for batches, the staleness bound or the warm start."""
        self.alone = strategy.groups is None
        """Whether every worker is a group by itself."""
        self._restrained = bool(strategy.warm_start) or strategy.staleness_bound is not None
        """Whether a group may have to wait although there are batches."""
        self._fetch_first = strategy.make_exchange.fetch_first
        self._fragments = strategy.fragments
        self._bound = StalenessBound(strategy.staleness_bound)
        self._first_alive: int | None = None

    # Who is alive

    def _member(self, worker: int) -> Member:
        if worker not in self.members:
            number = self.strategy.group_of(worker, self.workers)
            group = self.groups.setdefault(number, Group(number))
            self.members[worker] = Member(group)
        return self.members[worker]

    def expect(self, worker: int) -> Member:
        """A worker is alive or will be: rounds have a part for it."""
        member = self._member(worker)
        workers = member.group.workers
        position = bisect_left(workers, worker)
        if workers[position : position + 1] != [worker]:
            workers.insert(position, worker)
        return member

    def restore(self, position: Position) -> None:
        """Continues from there, before any worker is alive."""
        self.version = position.version
        for worker, sequence in position.sequences.items():
            member = self.expect(int(worker))
            member.sequence, group = sequence, member.group
            group.clock = group.planned = position.clocks.get(str(group.number), 0)

    def enter(self, worker: int) -> bool:
        """A worker is alive; whether it had not been."""
        member = self.expect(worker)
        if member.alive:
            return False
        group = member.group
        member.alive = True
        if self._first_alive is None or worker < self._first_alive:
            self._first_alive = worker
        if not group.members:
            self._bound.enter(group)
        insort(group.members, worker)
        return True

    def leave(self, worker: int) -> int:
        """A worker is gone, with all that it kept; how many batches are to be done by another."""
        member = self.members[worker]
        group, lost = member.group, 0
        member.alive, member.steps = False, 0
        group.members.remove(worker)
        if worker == self._first_alive:
            self._first_alive = min((w for w, m in self.members.items() if m.alive), default=None)
        for sequence in sorted(member.tasks, reverse=True):
            task = self.finished(worker, sequence)
            if task is None:
                continue
            lost += len(task.batches)
            one = group.round_of(task)
            if one is None:
                self.batches.put_back(task.epoch, task.batches)
            else:  # another worker does it in the same round
                one.todo.appendleft(task.batches)
        if self._fragments is not None:
            for one in group.rounds:
                self.put_back(one)
        if not group.members:
            self._bound.leave(group)
            self._waiting.pop(group.number, None)
        self.wake = True
        return lost

    def forget(self, worker: int) -> None:
        """A worker that is gone will not come back: rounds no longer have a part for it."""
        self.batches.orphan(worker)
        self.wake = True
        member = self.members.get(worker)
        if member is None or worker not in member.group.workers:
            return
        group = member.group
        group.workers.remove(worker)
        if not group.workers:  # no worker is left to do what is missing
            for one in group.rounds:
                self.put_back(one)

    def put_back(self, one: Round) -> None:
        """The parts of a round that no worker has are not done in it."""
        while one.todo:
            self.batches.put_back(one.epoch, one.todo.pop())
            one.parts -= 1

    # What they are given

    def proceed(self, group: Group, out: list[Instruction], free: int | None = None) -> None:
        """Gives the group's workers their next tasks, if it is time and there are any.

        Parts of rounds under way are offered to all of them, or only to `free`, which has just become so.
        """
        if self.alone:
            wants = bool(group.members) and self._proceed_alone(group, group.members[0], out)
        else:
            for one in group.rounds:
                if one.todo:
                    self._hand_out(group.members if free is None else (free,), one, out)
            wants = False
            while group.members and len(group.rounds) + group.applying < self.ahead:
                if self.strategy.backup_workers and group.rounds:
                    break  # whoever is late for this round is not given a part of the next one
                if not (self._may_begin(group) and self._begin(group, out)):
                    wants = True
                    break
        if wants:
            self._waiting[group.number] = group
        elif self._waiting:
            self._waiting.pop(group.number, None)

    def wake_waiting(self, out: list[Instruction]) -> None:
        while self.wake:
            self.wake = False
            for group in [*self._waiting.values()]:
                self.proceed(group, out)

    def _proceed_alone(self, group: Group, worker: int, out: list[Instruction]) -> bool:
        """A worker that is its own group; whether it wants a task it cannot have yet."""
        member = self.members[worker]
        tasks = member.tasks
        ahead = self.ahead if member.ahead is None else member.ahead
        while len(tasks) < ahead and (self.strategy.overlap or not group.applying):
            if member.next_sequence(self.slots) is None:
                return False  # it continues when its payload is applied
            may = not self._restrained or self._may_begin(group)
            epoch = self.batches.next_epoch(worker) if may else None
            if epoch is None:
                return True
            batches = self.batches.take(worker, epoch, self.strategy.push_every)
            if not batches:
                return True
            self._give(worker, epoch, batches, out)
        return False

    def _may_begin(self, group: Group) -> bool:
        if self.version < self.strategy.warm_start and group.members[0] != self._first_alive:
            return False
        return self._bound.allows(group)

    def _begin(self, group: Group, out: list[Instruction]) -> bool:
        """A round of one epoch, evenly at an epoch's end; whether there are batches for it."""
        epoch = next((e for w in group.workers if (e := self.batches.next_epoch(w)) is not None), None)
        if epoch is None:
            return False
        one = Round(group.planned, epoch)
        workers = group.workers if self._fragments is None else group.members
        self.add_parts(group, one, workers, turn=self.batches.next_turn(epoch))
        if not one.todo:
            return False
        group.planned += 1
        group.rounds.append(one)
        self._hand_out(group.members, one, out)
        return True

    def add_parts(self, group: Group, one: Round, workers: Iterable[int], given: int = 0, turn: int = 0) -> None:
        """Adds a part for each of `workers` to a round; `given`: batches of it that were handed out before."""
        most = self.strategy.push_every
        if most > 1:
            most = min(most, -(-(given + self.batches.remaining(one.epoch)) // len(group.workers)))
        parts = [part for worker in workers if (part := self.batches.take(worker, one.epoch, most, turn))]
        one.todo.extend(parts)
        one.parts += len(parts)

    def _hand_out(self, workers: Iterable[int], one: Round, out: list[Instruction]) -> None:
        """Gives parts of the round that no worker has to workers that have nothing to do before it."""
        for worker in workers:
            if not one.todo:
                return
            member = self.members[worker]
            if self.strategy.backup_workers and (member.tasks or worker in one.pushed):
                continue  # a round does not wait for a worker that is late, so nobody does two parts of it
            if member.alive and member.is_free_for(one) and member.next_sequence(self.slots) is not None:
                self._give(worker, one.epoch, one.todo.popleft(), out, one)

    def _give(
        self, worker: int, epoch: int, batches: tuple[int, ...], out: list[Instruction], one: Round | None = None
    ) -> None:
        member = self.members[worker]
        sequence = member.next_sequence(self.slots)
        assert sequence is not None, f"worker {worker} has no slot for another payload"
        member.sequence = sequence
        if one is None:
            task = Compute(worker, sequence, epoch, batches, self._fetches(member, len(batches)))
        elif self._fragments is None:
            task = Compute(worker, sequence, epoch, batches, self._fetches(member, len(batches)), one.number, one.parts)
        else:
            fragment, is_first = one.number % self._fragments, not member.steps
            fetches = (0 if is_first else min(self.strategy.overlap_steps, len(batches) - 1),)
            task = Compute(worker, sequence, epoch, batches, fetches, one.number, one.parts, fragment, is_first)
            member.steps = 1
        if one is not None:
            one.open.add((worker, sequence))
        member.tasks[sequence] = task
        self.outstanding += 1
        out.append(task)

    def _fetches(self, member: Member, steps: int) -> tuple[int, ...]:
        """Before which of a task's steps the parameters are fetched."""
        every = self.strategy.fetch_every
        if every == 1:
            return (0,) if steps == 1 else tuple(range(steps))
        if self._fetch_first:
            member.steps = 0
        positions = []
        for position in range(steps):
            if not member.steps:
                positions.append(position)
            member.steps += 1
            if member.steps == every:
                member.steps = 0
        return tuple(positions)

    # What comes back

    def finished(self, worker: int, sequence: int) -> Compute | None:
        """A task is no longer its worker's; None: it was given to another, or its round continued without it."""
        member = self.members.get(worker)
        task = member.tasks.pop(sequence, None) if member is not None else None
        if member is None or task is None:
            return None
        self.outstanding -= 1
        if self.alone:
            return task
        one = member.group.round_of(task)
        if one is None or (worker, sequence) not in one.open:
            return None
        one.open.remove((worker, sequence))
        return task

    def is_complete(self, one: Round) -> bool:
        """Whether nothing more is waited for."""
        if not (one.open or one.todo):
            return True
        spare = self.strategy.backup_workers
        return spare > 0 and bool(one.arrived) and (not one.open or len(one.arrived) >= self.workers - spare)

    # How far groups may part

    def advance_clock(self, group: Group) -> None:
        self.wake |= self._bound.advance(group)

    def pass_idle(self) -> None:
        """A group without batches left, after others did some of its own, is not waited for."""
        idle: list[Group] = []
        held: list[Group] = []
        for group in self._waiting.values():
            has_batches = any(self.batches.next_epoch(worker) is not None for worker in group.members)
            (held if has_batches else idle).append(group)
        slowest = min((group.clock for group in held), default=0)
        self.wake |= self._bound.skip_to(slowest, idle)
