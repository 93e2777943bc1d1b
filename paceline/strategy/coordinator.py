"""Runs a strategy: turns what happened into what to do next.

It knows no clock, process, socket or tensor. Events come in (a worker joined or died, a payload is ready or was
refused, an update was applied) and instructions go out, to be carried out in their order. The same object
drives a simulated cluster and real processes.
"""

from __future__ import annotations

from collections.abc import Collection

from paceline.strategy.adoption import adopt
from paceline.strategy.batches import Batches
from paceline.strategy.group import Arrival, Group, Round
from paceline.strategy.instructions import Apply, Compute, Contribution, Drop, EpochDone, Instruction
from paceline.strategy.ledger import Ledger
from paceline.strategy.position import Position
from paceline.strategy.rounds import Rounds
from paceline.strategy.strategy import Strategy
from paceline.strategy.turns import Turns


class Coordinator:
    def __init__(
        self, strategy: Strategy, workers: int, batches: int, epochs: int, *, ahead: int = 1, slots: int | None = None,
        turns: int = 1,
    ) -> None:  # fmt: skip
        """`ahead` tasks are given to a worker before its payload is applied; its payloads lie in `slots` in turn.

        More than one task ahead is for workers that may continue meanwhile, or that commit updates by themselves.
        `turns` are the phases that are trained in turn.
        """
        strategy.check(workers)
        self.strategy, self.workers = strategy, workers
        self.batches = Batches(batches, epochs, workers, strategy.full_pass_per_worker, turns)
        self.turns = Turns(turns, self.batches.per_turn)
        self.rounds = Rounds(strategy, workers, self.batches, ahead, slots)
        self.members, self.groups = self.rounds.members, self.rounds.groups
        self.ledger = Ledger()
        self.issued = 0
        """Updates that were decided; the last of them may not be applied yet."""
        self.epochs_done = 0
        """Epochs announced as done, in their order."""
        self._complete: set[int] = set()
        """Done, but for one before them."""
        self._enough = strategy.payloads_per_update(workers)
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

    def is_awaited(self, worker: int, sequence: int) -> bool:
        """Whether a payload is wanted when it comes, and not only dropped."""
        member = self.members[worker]
        task = member.tasks.get(sequence)
        return task is not None and (self.rounds.alone or member.group.awaits(task))

    def may_fetch(self, task: Compute) -> bool:
        """Whether a task can fetch now: with fragments, it waits until the update of the round before is made."""
        at_once = self.strategy.fragments is None or task.round is None
        return at_once or self.members[task.worker].group.has_updated_before(task)

    def steps_since_fetch(self, worker: int) -> int:
        return self.members[worker].steps

    def starts_anew(self, worker: int) -> None:
        """A worker that is about to join has nothing of what a former process of it had fetched."""
        if worker in self.members:
            self.members[worker].steps = 0

    def set_ahead(self, worker: int, tasks: int) -> None:
        """How many tasks a worker is given at a time from now on."""
        self.members[worker].ahead = tasks

    # What happened

    def joined(self, *workers: int) -> list[Instruction]:
        """Workers are alive, for the first time or again. Those that begin together are named together."""
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
            self._commit_complete(member.group, out)
            self.rounds.proceed(member.group, out)
        return self._settled(out)

    def ready(self, worker: int, sequence: int, pulled: int) -> list[Instruction]:
        """A payload is there; `pulled` is the version it was computed on."""
        task = self.rounds.finished(worker, sequence)
        if task is None:
            return self._dropped(worker, sequence)
        out: list[Instruction] = []
        member = self.members[worker]
        group = member.group
        member.unreleased.add(sequence)
        if self.rounds.alone:
            self._commit(group, [(task, pulled)], out)
        else:
            one = group.round_of(task)
            assert one is not None
            one.arrived.append((task, pulled))
            one.pushed.add(worker)
            self._commit_complete(group, out)
        self.rounds.proceed(group, out, worker)
        return self._settled(out)

    def refused(self, worker: int, sequence: int) -> list[Instruction]:
        """A non-finite payload is not applied; its batches count as done."""
        task = self.rounds.finished(worker, sequence)
        if task is None:
            return self._dropped(worker, sequence)
        out: list[Instruction] = [Drop(worker, sequence)]
        group = self.members[worker].group
        self.ledger.refused += len(task.batches)
        self._close(task, out)
        self._commit_complete(group, out)
        self.rounds.proceed(group, out, worker)
        return self._settled(out)

    def _dropped(self, worker: int, sequence: int) -> list[Instruction]:
        """A payload that is not wanted any more; its worker may have something else to do."""
        out: list[Instruction] = [Drop(worker, sequence)]
        if worker in self.members:
            self.rounds.proceed(self.members[worker].group, out, worker)
        return self._settled(out)

    def committed(self, worker: int, sequence: int, pulled: int) -> tuple[Apply, list[Instruction]]:
        """A worker made an update by itself: of its payload, or of its group's round, which that payload completed.

        The update is returned too, for the record; it is not to be applied again.
        """
        out: list[Instruction] = []
        group = self.members[worker].group
        task = self.members[worker].tasks[sequence]
        if self.rounds.alone:
            keys = [(worker, sequence)]
        else:
            one = group.rounds[0]
            assert one.number == task.round and not one.todo, "a round was committed out of order"
            keys = sorted(one.open)
        arrivals = [(found, pulled) for key in keys if (found := self.rounds.finished(*key)) is not None]
        if not self.rounds.alone:
            group.rounds.popleft()
        self._commit(group, arrivals, out)
        order = out.pop()
        assert isinstance(order, Apply), "a worker's own commit is one update"
        self._applied(order.update, out)
        return order, self._settled(out)

    def applied(self, update: int) -> list[Instruction]:
        """An update was made; its payloads need not be kept any longer."""
        out: list[Instruction] = []
        self._applied(update, out)
        return self._settled(out)

    def _applied(self, update: int, out: list[Instruction]) -> None:
        self.rounds.version = update
        self.ledger.updates += 1
        if update == self.strategy.warm_start:
            self.rounds.wake = True
        contributed = self._in_flight.pop(update)
        for _, arrivals in contributed:
            for task, _ in arrivals:
                self.ledger.applied[task.epoch] += len(task.batches)
                self.members[task.worker].unreleased.discard(task.sequence)
                self._close(task, out)
        for group, _ in contributed:
            group.applying -= 1
            if group.members:
                self.rounds.proceed(group, out)

    # Where it stands

    def position(self) -> Position:
        """Where it stands, while no update is under way; payloads that an update waits for count as not done."""
        per_epoch, opened = self.batches.per_epoch, range(self.epochs_done, self.batches.opened)
        closed = {epoch: self.batches.done.get(epoch, b"\1" * per_epoch) for epoch in opened}
        return Position(
            version=self.version,
            opened=self.batches.opened,
            done={str(epoch): tuple(b for b, is_done in enumerate(done) if is_done) for epoch, done in closed.items()},
            sequences={str(worker): member.sequence for worker, member in self.members.items()},
            clocks={str(group.number): group.clock for group in self.groups.values()},
            ledger=self.ledger.summary(),
        )

    def restore(self, position: Position) -> None:
        """Continues from `position`, before any worker joins."""
        self.issued = position.version
        self.batches.restore(position.opened, {int(epoch): list(done) for epoch, done in position.done.items()})
        self._complete = {int(e) for e, done in position.done.items() if len(done) == self.batches.per_epoch}
        self.epochs_done = min(map(int, position.done), default=position.opened)
        self.ledger = Ledger.of(position.ledger)
        self.rounds.restore(position)

    def adopt(
        self, tasks: Collection[Compute], alive: Collection[int], steps_since_fetch: dict[int, int] | None = None
    ) -> None:
        """After `restore`: workers have these tasks already, or their payloads are ready. `alive` are running."""
        adopt(self.rounds, tasks, alive, steps_since_fetch or {})

    # From payloads to updates, and to the end of an epoch

    def _commit_complete(self, group: Group, out: list[Instruction]) -> None:
        """Commits the group's rounds that wait for nothing more, in their order."""
        while group.rounds and self.rounds.is_complete(group.rounds[0]):
            one = group.rounds[0]
            if self.strategy.backup_workers:
                self._drop_late(one, out)
            group.rounds.popleft()
            if one.arrived:
                self._commit(group, one.arrived, out)
            else:  # all of it was refused or given back
                self.rounds.advance_clock(group)

    def _commit(self, group: Group, arrived: list[Arrival], out: list[Instruction]) -> None:
        if len(arrived) > 1:
            arrived.sort(key=lambda arrival: arrival[0].batches)
        self._collected.append((group, arrived))
        group.applying += 1
        self.rounds.advance_clock(group)
        if len(self._collected) >= self._enough:
            self._issue(out)

    def _drop_late(self, one: Round, out: list[Instruction]) -> None:
        """The round continues without those it does not wait for; their batches are closed, so no epoch waits.

        Parts that nobody has begun are done later.
        """
        for worker, sequence in sorted(one.open):
            task = self.members[worker].tasks[sequence]
            self.ledger.dropped += len(task.batches)
            out.append(Drop(worker, sequence, task))
            self._close(task, out)
        one.open.clear()
        self.rounds.put_back(one)

    def _issue(self, out: list[Instruction]) -> None:
        rounds, self._collected = self._collected, []
        contributions = []
        for group, arrivals in rounds:
            if len(arrivals) == 1:
                task, oldest = arrivals[0]
                tasks: tuple[Compute, ...] = (task,)
            else:
                oldest = min(pulled for _, pulled in arrivals)
                tasks = tuple(task for task, _ in arrivals)
            staleness = self.issued - oldest
            self.ledger.staleness[staleness] += 1
            contributions.append(Contribution(group.number, tasks, staleness))
        epoch = rounds[0][1][0][0].epoch
        self.issued += 1
        self._in_flight[self.issued] = rounds
        out.append(self.turns.order(self.issued, tuple(contributions), epoch, self.batches.closed(epoch)))

    def _close(self, task: Compute, out: list[Instruction]) -> None:
        if self.batches.close(task.epoch, task.batches):
            self.rounds.wake = True
            self._complete.add(task.epoch)
            while self.epochs_done in self._complete:  # the one before it may take longer
                self._complete.remove(self.epochs_done)
                out.append(EpochDone(self.epochs_done))
                self.epochs_done += 1

    def _settled(self, out: list[Instruction]) -> list[Instruction]:
        """Waiting workers may continue; once no payload is outstanding, an update waits for no more of them."""
        rounds = self.rounds
        if rounds.wake:
            rounds.wake_waiting(out)
        if not rounds.outstanding and self._collected:
            self._issue(out)
        if self.strategy.staleness_bound is not None and not (rounds.outstanding or self._in_flight):
            rounds.pass_idle()
            rounds.wake_waiting(out)
        return out
