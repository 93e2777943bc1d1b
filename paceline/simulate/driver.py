"""The virtual driver: carries out a coordinator's instructions on a simulated clock, in one process.

Events lie on a heap, ordered by time and then by the number under which they were put there, so ties are decided
once and for all and the same seed gives the same run.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

from paceline.errors import Diverged, PacelineError
from paceline.simulate.accounts import Accounts
from paceline.simulate.durations import Clockwork
from paceline.simulate.gradients import Gradients
from paceline.simulate.links import Links
from paceline.simulate.mishaps import Mishaps
from paceline.simulate.virtual_cluster import ALWAYS, VirtualCluster
from paceline.strategy.coordinator import Coordinator
from paceline.strategy.instructions import Apply, Compute, Drop, EpochDone, Instruction
from paceline.strategy.refusals import TOO_OFTEN
from paceline.testing.faults import Fault

LOOK_UP_EVERY = 4096


class VirtualDriver:
    """Without gradients it is about time alone. `watch` is told now and then, `epoch_done` of every epoch."""

    def __init__(
        self,
        coordinator: Coordinator,
        cluster: VirtualCluster,
        accounts: Accounts,
        *,
        seed: int = 0,
        message_bytes: int = 0,
        gradients: Gradients | None = None,
        on_bad_gradient: str = "stop",
        faults: tuple[Fault, ...] = (),
        epoch_done: Callable[[int], None] | None = None,
        watch: Callable[[], None] | None = None,
    ) -> None:
        self.coordinator, self.cluster, self.accounts, self.gradients = coordinator, cluster, accounts, gradients
        self.on_bad_gradient, self.epoch_done, self.watch = on_bad_gradient, epoch_done, watch
        self.now_s = 0.0
        self.compute = Clockwork(cluster.compute, seed, 1, cluster.speeds)
        self.serving = Clockwork(cluster.server, seed, 2)
        self.links = None if cluster.network is None else Links(cluster.network, seed, message_bytes)
        self._overlap = coordinator.strategy.overlap and self.links is not None and self.links.shared
        self._elastic = coordinator.strategy.exchange == "elastic"
        self._heap: list[tuple[float, int, Callable[[int, Any], None], int, int, Any]] = []
        self._number = 0
        self._server_free_s = 0.0
        self._refused_in_a_row = 0
        self._lives: dict[int, int] = {}
        """Of the workers that are there."""
        self._tasks: dict[int, list[Compute]] = {}
        """What a worker was given and has not computed yet."""
        self._pulled: dict[int, int] = {}
        self._reserved: dict[tuple[int, int], Any] = {}
        """Parameters of the version that a task must begin from."""
        self._begun_from: dict[int, tuple[int, Any]] = {}
        """The version and parameters of each group's round: some of its tasks may be given only later."""
        self._hanging: set[int] = set()
        """Workers that will do nothing any more, which nobody knows yet."""
        self.slower_s: dict[int, float] = {}
        """By how much a step of a worker takes longer than it should."""
        self._mishaps = Mishaps(self, cluster, faults, seed)
        self._over = False

    def run(self, workers: int) -> None:
        """Until every batch of every epoch is done."""
        # Millions of small objects and no cycles among them: looking for some would take half of the time.
        pauses = self.gradients is None and gc.isenabled()
        if pauses:
            gc.disable()
        try:
            self._run(workers)
        finally:
            if pauses:
                gc.enable()
            self._heap.clear()  # its handlers and we hold each other, and gradients hold much

    def _run(self, workers: int) -> None:
        first = self._mishaps.begin(workers)
        self._carry_out(self.coordinator.joined(*first))
        self._mishaps.meet_faults()
        heap, lives, count = self._heap, self._lives, 0
        while not self._over:
            if not heap:
                updates = self.coordinator.version
                raise PacelineError(f"after {self.now_s:g} virtual seconds and {updates} updates no worker is left")
            when_s, _, handle, worker, life, what = heappop(heap)
            if life == ALWAYS or lives.get(worker) == life:
                self.now_s = when_s
                handle(worker, what)
            count += 1
            if self.watch is not None and (self.gradients is not None or not count % LOOK_UP_EVERY):
                self.watch()
        self.accounts.end(self.now_s)

    def at(self, when_s: float, handle: Callable[[int, Any], None], worker: int, life: int, what: Any) -> None:
        self._number += 1
        heappush(self._heap, (when_s, self._number, handle, worker, life, what))

    # What the coordinator says

    def _carry_out(self, todo: list[Instruction]) -> None:
        if self.gradients is not None:
            self._reserve(todo)
        position = 0
        while position < len(todo):
            one = todo[position]
            position += 1
            if type(one) is Compute:
                self._give(one)
            elif type(one) is Apply:
                if self.serving.zero:
                    self._apply(one)
                    more = self.coordinator.applied(one.update)
                    if self.gradients is not None:
                        self._reserve(more)
                    todo += more
                else:
                    self._queue_at_server(one)
            elif type(one) is EpochDone:
                if self.epoch_done is not None:
                    self.epoch_done(one.epoch)
                self._over = self.coordinator.finished
            elif type(one) is Drop and self.gradients is not None:
                self.gradients.dropped(one.worker, one.sequence)

    def _reserve(self, todo: list[Instruction]) -> None:
        """Keeps what tasks must begin from, before another instruction of the same moment can replace it."""
        assert self.gradients is not None
        for one in todo:
            if type(one) is Compute and one.version is not None:
                group = self.coordinator.members[one.worker].group.number
                if self._begun_from.get(group, (None,))[0] != one.version:
                    assert one.version == self.gradients.version
                    self._begun_from[group] = one.version, self.gradients.current
                self._reserved[one.worker, one.sequence] = self._begun_from[group][1]

    def _queue_at_server(self, order: Apply) -> None:
        start_s = max(self.now_s, self._server_free_s)
        payloads = sum(len(contribution.payloads) for contribution in order.contributions)
        self._server_free_s = start_s + sum(self.serving.next(0) for _ in range(payloads))
        self.accounts.server_s += self._server_free_s - start_s
        if self.accounts.tracing:
            self.accounts.span("server", "apply", start_s, self._server_free_s, f"update {order.update}")
        self.at(self._server_free_s, self._served, 0, ALWAYS, order)

    def _served(self, _: int, order: Apply) -> None:
        self._apply(order)
        self._carry_out(self.coordinator.applied(order.update))

    def _apply(self, order: Apply) -> None:
        if self.gradients is not None:
            self.gradients.apply(order)
        self._mishaps.updated()

    # A task

    def _give(self, task: Compute) -> None:
        tasks = self._tasks[task.worker]
        tasks.append(task)
        if len(tasks) == 1 and task.worker not in self._hanging:
            self._go_on(task.worker, (task, 0))

    def _go_on(self, worker: int, where: tuple[Compute, int]) -> None:
        """From a position of a task to its next fetch, or to its end."""
        task, position = where
        if position in task.fetches:
            if self.links is not None:
                asked_s = self.links.asked(worker, self.now_s)
                self.at(asked_s, self._send, worker, self._lives[worker], (task, position, self.now_s))
                return
            self._note_fetch(task, position)
        self._compute(worker, task, position)

    def _compute(self, worker: int, task: Compute, position: int) -> None:
        seconds, end, steps = self.compute.next(worker), position + 1, len(task.batches)
        while end < steps and end not in task.fetches:
            seconds += self.compute.next(worker)
            end += 1
        if self.slower_s:
            seconds += self.slower_s.get(worker, 0.0) * (end - position)
        now_s = self.now_s
        mine = self.accounts.workers[worker]
        mine.computing_s += seconds
        mine.busy_until_s = now_s + seconds
        if self.accounts.tracing:
            mine.span = self.accounts.span(f"worker {worker}", "compute", now_s, now_s + seconds)
        self._number += 1
        handle = self._computed if end == steps else self._go_on
        heappush(self._heap, (now_s + seconds, self._number, handle, worker, self._lives[worker], (task, end)))

    def _send(self, worker: int, where: tuple[Compute, int, float]) -> None:
        """The server answers a fetch; what it sends is what it has at this moment, or what the task asks for."""
        assert self.links is not None
        self._note_fetch(where[0], where[1])
        self.at(self.links.received(worker, self.now_s), self._received, worker, self._lives[worker], where)

    def _received(self, worker: int, where: tuple[Compute, int, float]) -> None:
        task, position, asked_s = where
        self._charge(worker, "fetch", asked_s)
        if position < len(task.batches):
            self._compute(worker, task, position)
        else:
            self._push(worker, task)

    def _charge(self, worker: int, what: str, since_s: float) -> None:
        self.accounts.workers[worker].communicating_s += self.now_s - since_s
        if self.accounts.tracing:
            self.accounts.span(f"worker {worker}", what, since_s, self.now_s)

    def _note_fetch(self, task: Compute, position: int) -> None:
        worker, version = task.worker, task.version
        self._pulled[worker] = self.coordinator.version if version is None else version
        if self.gradients is None:
            return
        if version is None or position == len(task.batches):
            self.gradients.fetched(worker, position, self.gradients.version, self.gradients.current)
        else:
            self.gradients.fetched(worker, position, version, self._reserved[worker, task.sequence])

    def _computed(self, worker: int, where: tuple[Compute, int]) -> None:
        """All steps are done; elastic averaging looks at the centre before it pushes."""
        task, position = where
        if self._elastic:
            if self.links is not None:
                asked_s = self.links.asked(worker, self.now_s)
                self.at(asked_s, self._send, worker, self._lives[worker], (task, position, self.now_s))
                return
            self._note_fetch(task, position)
        self._push(worker, task)

    def _push(self, worker: int, task: Compute) -> None:
        """The payload goes to the server; a worker that overlaps goes on with its next task meanwhile."""
        self.accounts.workers[worker].batches += len(task.batches)
        pulled, good = self._pulled[worker], True
        if self.gradients is not None:
            self._reserved.pop((worker, task.sequence), None)
            pulled, good = self.gradients.finished(task)
        tasks = self._tasks[worker]
        if self.links is None:
            tasks.pop(0)
            self._arrived(worker, (task, pulled, good, self.now_s))
            return
        arrives_s = self.links.pushed(worker, self.now_s)
        what = (task, pulled, good, self.now_s)
        if self._overlap:
            tasks.pop(0)
            self.at(arrives_s, self._arrived, worker, self._lives[worker], what)
            if tasks:
                self._go_on(worker, (tasks[0], 0))
        else:
            self.at(arrives_s, self._copied, worker, self._lives[worker], what)

    def _copied(self, worker: int, what: tuple[Compute, int, bool, float]) -> None:
        self._tasks[worker].pop(0)
        self._charge(worker, "push", what[3])
        self._arrived(worker, what)

    def _arrived(self, worker: int, what: tuple[Compute, int, bool, float]) -> None:
        task, pulled, good, _ = what
        if good:
            self._refused_in_a_row = 0
        if good or not self.coordinator.waits_for(worker, task.sequence):
            self._carry_out(self.coordinator.ready(worker, task.sequence, pulled))
            return
        self._refused_in_a_row += 1
        line = f"the payload of worker {worker}, step {task.sequence} (epoch {task.epoch + 1}) is not finite"
        if self.on_bad_gradient == "stop":
            raise Diverged(
                f"{line}: lower the learning rate, or go on without such payloads with --on-bad-gradient skip"
            )
        if self._refused_in_a_row >= TOO_OFTEN:
            raise Diverged(f"{TOO_OFTEN} payloads in a row were not finite, the last: {line}")
        self.accounts.fault(self.now_s, "refused", worker, task.sequence, line)
        self._carry_out(self.coordinator.refused(worker, task.sequence))

    # Workers come and go

    def enter(self, worker: int) -> int:
        """A worker is there, in a new life, whose number this is; what an earlier one was doing is void."""
        life = self._lives[worker] = self.accounts.joined(worker, self.now_s).lives
        self._tasks[worker] = []
        if self.gradients is not None:
            self.gradients.joined(worker)
        return life

    def join(self, worker: int) -> int | None:
        """Enters a worker that is not there, and gives it something to do; None if it was there already."""
        if worker in self._lives:
            return None
        life = self.enter(worker)
        self._carry_out(self.coordinator.joined(worker))
        return life

    def freeze(self, worker: int) -> int | None:
        """What a worker is doing comes to nothing, but nobody knows yet; the life in which it hangs."""
        if worker not in self._lives or worker in self._hanging:
            return None
        self._hanging.add(worker)
        self._lives[worker] += 1 << 32
        return self._lives[worker]

    def remove(self, worker: int, what: str, *, for_good: bool) -> bool:
        """A worker is gone; whether it had been there."""
        if worker not in self._lives:
            if for_good:  # nor will it be there again
                self._carry_out(self.coordinator.died(worker, for_good=True))
            return False
        del self._lives[worker]
        self._hanging.discard(worker)
        self.accounts.left(worker, self.now_s)
        self.accounts.fault(self.now_s, what, worker)
        for task in self._tasks.pop(worker):
            self._reserved.pop((worker, task.sequence), None)
        if self.gradients is not None:
            self.gradients.died(worker)
        self._carry_out(self.coordinator.died(worker, for_good=for_good))
        return True
