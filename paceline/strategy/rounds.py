"""How a round goes: which worker is given which batches, computed on which version, and when a group has all of them.

A synchronous round has a part for each of its workers and is complete when all parts are in. Which parts these are does
not depend on who is there: what a worker that died had in hand is done in the same round by another, or by who
replaces it. So an update is made of the same gradients whatever happens.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable

from paceline.strategy.batches import Batches
from paceline.strategy.bound import Bound
from paceline.strategy.group import Group, Member
from paceline.strategy.instructions import Compute, Instruction
from paceline.strategy.strategy import Strategy


class Rounds:
    def __init__(self, strategy: Strategy, workers: int, batches: Batches, ahead: int, places: int | None) -> None:
        self.strategy, self.workers, self.batches = strategy, workers, batches
        self.ahead, self.places = ahead, places
        self.members: dict[int, Member] = {}
        self.groups: dict[int, Group] = {}
        self.version = 0
        """Updates applied: what a round that begins now is computed on."""
        self.outstanding = 0
        """Tasks given and not ready."""
        self.wake = False
        """Whether something happened that a waiting group may have waited for."""
        self._waiting: dict[int, Group] = {}
        """Groups that could begin a round but for batches, their bound or the warm start."""
        self._alone = strategy.groups is None
        self._in_parts = not self._alone and not strategy.spares
        """Whether a round waits for all its parts, whoever computes them."""
        self._restrained = bool(strategy.warm_start) or strategy.bound is not None
        """Whether a group may have to wait although there are batches."""
        self._bound = Bound(strategy.bound)
        self._first_alive: int | None = None

    # Who is there

    def _member(self, worker: int) -> Member:
        if worker not in self.members:
            number = self.strategy.group_of(worker, self.workers)
            group = self.groups.setdefault(number, Group(number))
            self.members[worker] = Member(group)
        return self.members[worker]

    def expect(self, worker: int) -> Member:
        """A worker is there or will be: rounds have a part for it."""
        member = self._member(worker)
        workers = member.group.workers
        place = bisect_left(workers, worker)
        if workers[place : place + 1] != [worker]:
            workers.insert(place, worker)
        return member

    def enter(self, worker: int) -> bool:
        """A worker is there; whether it had not been."""
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
        for task in sorted(member.tasks.values(), reverse=True):
            self.outstanding -= 1
            if (worker, task.sequence) in group.open:  # else the round went on without it
                group.open.remove((worker, task.sequence))
                lost += len(task.batches)
                if self._in_parts:
                    group.todo.appendleft(task.batches)
                else:
                    self.batches.put_back(task.epoch, task.batches)
        member.tasks.clear()
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
        if not group.workers:  # nobody is left to do what is missing
            while group.todo:
                self.batches.put_back(group.epoch, group.todo.pop())

    # What they are given

    def proceed(self, group: Group, out: list[Instruction], free: int | None = None) -> None:
        """Gives the group's workers their next tasks, if it is time and there are any; `free` has just become so."""
        if self._alone:
            wants = bool(group.members) and self._proceed_alone(group, group.members[0], out)
        elif group.open and self.strategy.spares:
            wants = False
            if free is not None and free not in group.pushed:
                member = self.members[free]
                if member.alive and not member.tasks:  # the round goes on
                    self._take(free, group.epoch, self.strategy.push_every, group.version, out)
        else:
            if group.todo:
                self._hand_out(group, out)
            begins = bool(group.members) and not (group.open or group.todo or group.arrived or group.applying)
            wants = begins and not (self._may_begin(group) and self._begin(group, out))
        if wants:
            self._waiting[group.number] = group
        elif self._waiting:
            self._waiting.pop(group.number, None)

    def wake_waiting(self, out: list[Instruction]) -> None:
        while self.wake:
            self.wake = False
            for group in list(self._waiting.values()):
                self.proceed(group, out)

    def _proceed_alone(self, group: Group, worker: int, out: list[Instruction]) -> bool:
        """A worker that is its own group; whether it wants a task it cannot have yet."""
        member = self.members[worker]
        tasks = member.tasks
        ahead = self.ahead if member.ahead is None else member.ahead
        while len(tasks) < ahead and (self.strategy.overlap or not group.applying):
            if not self._has_place(member):
                return False  # it goes on when its payload is applied
            may = not self._restrained or self._may_begin(group)
            epoch = self.batches.next_epoch(worker) if may else None
            if epoch is None or not self._take(worker, epoch, self.strategy.push_every, None, out):
                return True
        return False

    def _has_place(self, member: Member) -> bool:
        """Whether the payload that was in the place of the next one is done with."""
        if self.places is None:
            return True
        before = member.sequence + 1 - self.places
        return before not in member.tasks and before not in member.kept

    def _may_begin(self, group: Group) -> bool:
        if self.version < self.strategy.warm_start and group.members[0] != self._first_alive:
            return False
        return self._bound.allows(group)

    def _begin(self, group: Group, out: list[Instruction]) -> bool:
        """A round of one epoch and from one version, evenly at an epoch's end; whether there are batches for it."""
        takers = group.workers if self._in_parts else group.members
        epoch = next((e for w in takers if (e := self.batches.next_epoch(w)) is not None), None)
        if epoch is None:
            return False
        group.epoch, group.version = epoch, self.version
        if self._in_parts:
            self._add_parts(group, takers)
            self._hand_out(group, out)
        else:
            most = self._share(group)
            for worker in takers:
                if not self.members[worker].tasks:
                    self._take(worker, epoch, most, group.version, out)
        return bool(group.open)

    def _share(self, group: Group, given: int = 0) -> int:
        """How many batches a task of the round has, when so many of it are given already."""
        most = self.strategy.push_every
        if most == 1:
            return 1
        return min(most, -(-(given + self.batches.remaining(group.epoch)) // len(group.workers)))

    def _add_parts(self, group: Group, workers: Iterable[int], given: int = 0) -> None:
        most = self._share(group, given)
        parts = (self.batches.take(worker, group.epoch, most) for worker in workers)
        group.todo.extend(part for part in parts if part)

    def _hand_out(self, group: Group, out: list[Instruction]) -> None:
        """Parts of the round that nobody has go to who has nothing to do."""
        for worker in group.members:
            member = self.members[worker]
            if group.todo and not member.tasks and self._has_place(member):
                self._give(worker, group.epoch, group.todo.popleft(), group.version, out)

    def _take(self, worker: int, epoch: int, most: int, version: int | None, out: list[Instruction]) -> bool:
        """Gives a worker the next batches of an epoch, if there are any."""
        batches = self.batches.take(worker, epoch, most)
        if not batches:
            return False
        self._give(worker, epoch, batches, version, out)
        return True

    def _give(
        self, worker: int, epoch: int, batches: tuple[int, ...], version: int | None, out: list[Instruction]
    ) -> None:
        member = self.members[worker]
        member.sequence += 1
        task = Compute(worker, member.sequence, epoch, batches, self._fetches(member, len(batches)), version)
        member.tasks[task.sequence] = task
        member.group.open.add((worker, task.sequence))
        self.outstanding += 1
        out.append(task)

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

    # What comes back

    def finished(self, worker: int, sequence: int) -> Compute | None:
        """The task that is ready; None: of a life that was given up, another has its batches."""
        member = self.members.get(worker)
        task = member.tasks.pop(sequence, None) if member is not None else None
        if task is not None:
            self.outstanding -= 1
        return task

    def is_complete(self, group: Group) -> bool:
        """Whether the payloads that have arrived make a contribution."""
        if self._alone or not group.arrived:
            return bool(group.arrived)
        if self.strategy.spares:
            return not group.open or len(group.arrived) >= self.workers - self.strategy.spares
        return not (group.open or group.todo)

    def adopt(self, tasks: Collection[Compute], alive: Collection[int]) -> None:
        """These were given by a predecessor, and are in hand or ready. Of rounds under way the rest is added."""
        for task in tasks:
            member = self.expect(task.worker)
            if task.worker in alive:
                self.enter(task.worker)
            member.sequence = max(member.sequence, task.sequence)
            member.tasks[task.sequence] = task
            group = member.group
            group.open.add((task.worker, task.sequence))
            group.epoch, group.version = task.epoch, task.version or 0
            self.outstanding += 1
            self.batches.open_until(task.epoch)
            self.batches.take_these(task.epoch, task.batches)
        if self._in_parts:
            for group in self.groups.values():
                self._complete(group, [task for task in tasks if self.members[task.worker].group is group])

    def _complete(self, group: Group, tasks: list[Compute]) -> None:
        if not tasks:
            return
        missing = group.workers[len(tasks) :]
        if self.batches.own_pass:
            there = {self.batches.whose(task.batches[0]) for task in tasks}
            missing = [worker for worker in group.workers if worker not in there]
        self._add_parts(group, missing, sum(len(task.batches) for task in tasks))

    # How far groups may part

    def advance_clock(self, group: Group) -> None:
        self.wake |= self._bound.advance(group)

    def pass_idle(self) -> None:
        """Who has no batches left, after others did some of its own, is not waited for."""
        idle: list[Group] = []
        held: list[Group] = []
        for group in self._waiting.values():
            has_batches = any(self.batches.next_epoch(worker) is not None for worker in group.members)
            (held if has_batches else idle).append(group)
        slowest = min((group.clock for group in held), default=0)
        self.wake |= self._bound.skip_to(slowest, idle)
