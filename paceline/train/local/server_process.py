"""The server: `python -m paceline.train.local.server_process SETTINGS`, started by the launcher.

It runs the coordinator, and makes the updates that workers do not make themselves. All it knows is in shared memory, so
that its successor goes on where it was: with the version published last, and the payloads not acknowledged yet.
"""

from __future__ import annotations

import gc
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from paceline.errors import Diverged
from paceline.strategy.coordinator import Coordinator
from paceline.strategy.instructions import Apply, Compute, Drop, EpochDone, Instruction
from paceline.strategy.pieces import pieces_of
from paceline.strategy.refusals import TOO_OFTEN, is_finite
from paceline.strategy.server import Server
from paceline.train.local import made, mailbox, marks
from paceline.train.local.child import as_child
from paceline.train.local.collective import SHARED
from paceline.train.local.doorbell import Doorbell
from paceline.train.local.event_log import EventLog
from paceline.train.local.memory import REFUSALS_KEPT, Memory
from paceline.train.local.pen import Pen
from paceline.train.local.recovery import recovered
from paceline.train.local.settings import Settings
from paceline.train.local.shards import Shards
from paceline.train.local.span_log import SpanLog
from paceline.train.local.sums import Sums
from paceline.train.local.updating import Updating
from paceline.train.local.words import LINE, SLOT_WORDS, Control, Of, Payload

LOOK_UP_S = 0.2


class ServerLoop:
    def __init__(self, settings: Settings, memory: Memory) -> None:
        self.settings, self.memory = settings, memory
        self.control, self.slots = memory.control, memory.slots
        workers = settings.workers
        self.bell = Doorbell(memory, workers, settings.wake_server, settings.parent)
        self.bells = [Doorbell(memory, number, settings.wake_workers[number]) for number in range(workers)]
        self.bell_of_launcher = Doorbell(memory, workers + 1, settings.wake_launcher)
        self.coordinator = Coordinator(
            settings.strategy, workers, settings.layout.batches, settings.layout.epochs,
            ahead=2, places=memory.sizes.ahead,
        )  # fmt: skip
        self.tasks: dict[tuple[int, int], Compute] = {}
        """Given and not closed yet."""
        self.log = EventLog(memory) if memory.sizes.events else None
        pieces = pieces_of(settings.layout, memory.sizes.shards)
        server = Server(settings.strategy, settings.layout, workers, pieces[0])
        shards = Shards(memory, settings, self.bell, self.beat) if len(pieces) > 1 else None
        self.updating = Updating(memory, server, self.log, SpanLog(memory, workers), workers, shards)
        self.sums = Sums(memory, settings) if settings.collective != SHARED else None
        self.pen = Pen(memory, self.beat) if memory.sizes.own_updates else None
        self.lives = [0] * workers
        """Which life of each worker the coordinator knows as alive."""
        self.seen = [[0, 0] for _ in range(workers)]
        """The sequence of each payload that was dealt with."""
        self.todo: deque[Instruction] = deque()
        self.knows_all = False
        """Whether it has looked around, and from then on hears of every update."""

    def beat(self) -> None:
        self.control[Control.SERVER_BEAT] = time.monotonic_ns()

    def serve(self) -> None:
        """Until the launcher ends us."""
        self.beat()
        with self._as_writer():
            self._finish_epochs()
            recovered(self.memory, self.settings, self)
        self.control[Control.SERVER_READY] = self.settings.life
        self.bell_of_launcher.ring()
        while True:
            self.bell.lie_down()
            if not self._look():
                self.bell.sleep(LOOK_UP_S)
            self.beat()
            if self.coordinator.finished and not self.control[Control.FINISHED]:
                self.control[Control.FINISHED] = 1
                self.bell_of_launcher.ring()

    def _look(self) -> bool:
        """Deals with what has happened since; whether anything has."""
        slots = self.slots
        arrived = []
        happened = self._catch_up()
        for worker in range(self.settings.workers):
            slot = worker * SLOT_WORDS
            dead = slots[slot + Of.DEAD]
            happened |= self._look_at_payloads(worker, slot)
            if self.lives[worker] and dead >= self.lives[worker]:
                self._catch_up()
                self.lives[worker] = 0
                self.died(worker)
                happened = True
            life = slots[slot + Of.JOINED]
            if life > max(dead, self.lives[worker]):
                arrived.append((worker, life))
        if arrived and not self._others_come_for_the_first_time():
            for worker, life in arrived:
                self.lives[worker] = life
            self.carry_out(self.coordinator.joined(*(worker for worker, _ in arrived)))
            return True
        return happened

    @contextmanager
    def _as_writer(self) -> Iterator[None]:
        """Nobody else makes updates meanwhile, and those that others made are known."""
        if self.pen is None:
            yield
            return
        with self.pen:
            self._catch_up()
            if self.log is not None:
                self.log.go_on()
            yield
            if self.log is not None:
                self.log.keep()

    def _catch_up(self) -> bool:
        """Tells the coordinator, in their order, of updates that workers made themselves; whether there were any."""
        coordinator, version = self.coordinator, self.control[Control.VERSION]
        if not self.knows_all or coordinator.version == version:
            return False
        self.bell.get_up()
        while coordinator.version < version:
            following = coordinator.version + 1
            worker, sequence, pulled = made.read(self.memory, following)
            coordinator.members[worker].ahead = self.slots[worker * SLOT_WORDS + Of.WANTED]
            self.carry_out(coordinator.ready(worker, sequence, pulled))
            assert coordinator.version == following, f"update {following} was made of a task that nobody had"
        return True

    def _others_come_for_the_first_time(self) -> bool:
        """All begin together, so that the first rounds have all their members."""
        lives = [self.slots[w * SLOT_WORDS : w * SLOT_WORDS + SLOT_WORDS] for w in range(self.settings.workers)]
        return any(w[Of.LIFE] <= 1 and not w[Of.JOINED] and not w[Of.DEAD] for w in lives)

    def _look_at_payloads(self, worker: int, slot: int) -> bool:
        slots, seen = self.slots, self.seen[worker]
        first = slot + Of.PAYLOAD + Payload.READY
        ready = (slots[first], slots[first + LINE])
        happened = False
        for place in (0, 1) if ready[0] < ready[1] else (1, 0):
            if ready[place] > seen[place]:
                self.bell.get_up()
                seen[place] = ready[place]
                with self._as_writer():
                    self.deal_with(worker, place, ready[place])
                happened = True
        return happened

    def deal_with(self, worker: int, place: int, sequence: int) -> None:
        """A payload is whole."""
        if self.sums is not None:
            counting, lost = self.sums.settle(worker, sequence)
            self._do_again(lost)
            for key in counting:
                self._count(*key)
        else:
            self._count(worker, sequence)

    def _count(self, worker: int, sequence: int) -> None:
        place = sequence % 2
        line = worker * SLOT_WORDS + Of.PAYLOAD + place * LINE
        if self.log is not None and (found := mailbox.given(self.memory, worker, sequence)) is not None:
            self.log.task(found[1], found[0])  # one that is to be dropped changed its worker, too
        looked_at = self.slots[line + Payload.SUMMED] > 0  # by whoever made the sum
        if (worker, sequence) in self.tasks and not looked_at and not is_finite(self.memory.payloads[worker][place]):
            self._refuse(worker, sequence)
            return
        self.carry_out(self.coordinator.ready(worker, sequence, self.slots[line + Payload.PULLED]))

    def died(self, worker: int) -> None:
        """A worker is gone, with what it had not finished."""
        lost = self.sums.give_up(worker) if self.sums is not None else []
        for sequence in self.coordinator.members[worker].tasks:  # their payloads will not come
            self.tasks.pop((worker, sequence), None)
        self.carry_out(self.coordinator.died(worker))
        self.control[Control.RETURNED] = self.coordinator.ledger.returned
        self._do_again(lost)

    def _do_again(self, lost: list[tuple[int, int]]) -> None:
        """These payloads were in a sum that was given up: for the coordinator their workers were away for a moment."""
        for worker, sequence in lost:
            self.acknowledge(worker, sequence)
            if (worker, sequence) in self.tasks:  # not that of one that did die
                self.died(worker)
                self.carry_out(self.coordinator.joined(worker))

    def _refuse(self, worker: int, sequence: int) -> None:
        task = self.tasks[worker, sequence]
        count = self.control[Control.REFUSALS]
        if count < REFUSALS_KEPT:
            self.memory.refusals[count] = worker, sequence, task.epoch, task.batches[0]
        self.control[Control.REFUSALS] = count + 1
        self.control[Control.REFUSED_IN_A_ROW] += 1
        where = f"worker {worker}, task {sequence}, epoch {task.epoch + 1}, step {task.batches[0]}"
        if self.settings.on_bad_gradient == "stop":
            raise Diverged(
                f"a payload is not finite ({where}): lower the learning rate, or go on without such payloads "
                "with --on-bad-gradient skip"
            )
        if self.control[Control.REFUSED_IN_A_ROW] >= TOO_OFTEN:
            raise Diverged(
                f"{TOO_OFTEN} payloads in a row were not finite, the last of {where}: lower the learning rate"
            )
        self._close(task, marks.REFUSED, self.control[Control.VERSION])
        self.carry_out(self.coordinator.refused(worker, sequence))

    def carry_out(self, instructions: list[Instruction]) -> None:
        """One after another; what follows from an update comes before the next.

        Where workers make updates themselves it comes last: tasks that were given before it have lower sequences.
        """
        todo = self.todo
        todo.extend(instructions)
        while todo:
            instruction = todo.popleft()
            if isinstance(instruction, Compute):
                self._give(instruction)
            elif isinstance(instruction, Apply):
                if instruction.update > self.control[Control.VERSION]:
                    self._make(instruction)
                self._acknowledge(instruction)
                following = self.coordinator.applied(instruction.update)
                if self.pen is None:
                    todo.extendleft(reversed(following))
                else:
                    todo.extend(following)
            elif isinstance(instruction, Drop):
                self._drop(instruction)
            elif isinstance(instruction, EpochDone):
                self._finish_epoch(instruction.epoch)

    def _make(self, order: Apply) -> None:
        if self.pen is not None:
            (contribution,) = order.contributions
            task = self.tasks[contribution.payloads[0]]
            made.write(self.memory, order.update, task, order.update - 1 - contribution.staleness)
        self.updating.make(order, self.tasks, self.coordinator.groups)

    def _give(self, task: Compute) -> None:
        self.tasks[task.worker, task.sequence] = task
        member = self.coordinator.members[task.worker]
        if self.memory.snapshots:
            assert task.version is not None
            self.updating.take_snapshot(member.group.number, task.version)
        if self.sums is not None:
            self.sums.give(task, member.group, self.lives)
        before = self.slots[task.worker * SLOT_WORDS + Of.GIVEN]
        assert task.sequence == before + 1, f"task {task.sequence} of worker {task.worker} comes after {before}"
        mailbox.give(self.memory, task, self.lives[task.worker], member.steps)
        self.bells[task.worker].ring()

    def _drop(self, drop: Drop) -> None:
        """A payload of a task that others have done, or of a round that goes on without it; it may not be there yet."""
        task = self.tasks.pop((drop.worker, drop.sequence), None)
        if task is not None:
            version = self.control[Control.VERSION]
            row = marks.closed(self.memory.marks, task.epoch, version)
            if not row[task.batches[0]]:
                self._close(task, marks.DROPPED, version)
        self.acknowledge(drop.worker, drop.sequence)

    def _close(self, task: Compute, kind: int, version: int) -> None:
        """Its batches are done with, without an update."""
        marks.mark(self.memory, task.epoch, task.batches, kind, version)
        if self.pen is not None:
            made.count(self.memory)

    def _acknowledge(self, order: Apply) -> None:
        """What an update was made of is done with."""
        for contribution in order.contributions:
            for worker, sequence in contribution.payloads:
                del self.tasks[worker, sequence]
                self.acknowledge(worker, sequence)

    def acknowledge(self, worker: int, sequence: int) -> None:
        place = sequence % 2
        slot = worker * SLOT_WORDS
        if self.slots[slot + Of.PAYLOAD + place * LINE + Payload.READY] == sequence:
            self.slots[slot + Of.ACKNOWLEDGED + place] = sequence
            self.bells[worker].ring()

    def _finish_epochs(self) -> None:
        """A server that died between the last update of an epoch, or of two at once, and the word that says so."""
        epoch, version = self.control[Control.EPOCHS_DONE], self.control[Control.VERSION]
        while epoch < self.settings.layout.epochs and marks.closed(self.memory.marks, epoch, version).all():
            self._finish_epoch(epoch)
            epoch += 1

    def _finish_epoch(self, epoch: int) -> None:
        """The launcher gets the parameters as they are now, for a test; workers may be a few updates further."""
        control = self.control
        while control[Control.EPOCHS_TAKEN] < epoch - 1:  # it still has to take those of two epochs ago
            self.bell.lie_down()
            self.bell.sleep(LOOK_UP_S)
            self.beat()
        with self.pen or nullcontext():
            version = control[Control.VERSION]
            self.memory.epoch_parameters[epoch % 2].copy_(self.memory.parameters[version % 2])
        counts = marks.counts(self.memory.marks, epoch, version)
        assert sum(counts) == self.memory.sizes.batches, f"{counts} of {self.memory.sizes.batches} batches are marked"
        self.memory.totals[epoch] = counts
        control[Control.EPOCHS_DONE] = epoch + 1
        self.bell_of_launcher.ring()


def main(settings: Settings) -> None:
    with as_child(settings) as memory:
        loop = ServerLoop(settings, memory)
        gc.collect()
        gc.freeze()
        loop.serve()


if __name__ == "__main__":
    main(Settings.of(sys.argv[1]))
