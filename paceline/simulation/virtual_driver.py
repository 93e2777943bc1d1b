"""The virtual driver: an engine on a simulated clock, in one process.

Events lie on a heap, ordered by time and then by the number under which they were put there, so ties are decided
once and for all and the same seed gives the same run.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, Protocol

from paceline.errors import PacelineError
from paceline.simulation.durations import DurationSampler
from paceline.simulation.fault_schedule import FaultSchedule
from paceline.simulation.links import Links, message_sizes
from paceline.simulation.virtual_cluster import ALWAYS, VirtualCluster
from paceline.simulation.virtual_store import VirtualStore
from paceline.simulation.worker_times import SPANS, WorkerTimes
from paceline.strategy.coordinator import Coordinator
from paceline.strategy.engine import Engine
from paceline.strategy.instructions import Apply, Compute
from paceline.strategy.strategy import Strategy
from paceline.testing.faults import Fault

CHECK_EVERY = 4096
"""Events between two calls of `Observer.advanced` where no gradients are computed."""


class Observer(Protocol):
    """Called for every epoch and every update, and now and then between them."""

    def epoch_done(self, epoch: int) -> None: ...

    def updated(self, update: int) -> None: ...

    def advanced(self) -> None: ...


class VirtualDriver:
    """The engine's transport, and its store on the simulated clock; without gradients it is about time alone."""

    def __init__(
        self,
        strategy: Strategy,
        workers: int,
        cluster: VirtualCluster,
        *,
        batches: int,
        epochs: int = 1,
        seed: int = 0,
        message_bytes: int = 0,
        gradients: VirtualStore | None = None,
        on_bad_gradient: str = "stop",
        faults: tuple[Fault, ...] = (),
        observer: Observer | None = None,
        spans: int = SPANS,
        slots: int | None = None,
    ) -> None:
        """`message_bytes` is the size of the parameters where there are no gradients."""
        strategy.check(workers, batches)
        cluster.check(workers, faults)
        self.strategy, self.workers, self.cluster = strategy, workers, cluster
        self.gradients, self.observer = gradients, observer
        network = cluster.network
        self._overlap = strategy.overlap and network is not None and network.shared
        ahead = 2 if self._overlap else 1
        self._turns = 1 if gradients is None else gradients.learner.turns.count
        self.coordinator = Coordinator(
            strategy, workers, batches, epochs, ahead=ahead, slots=slots, turns=self._turns
        )  # fmt: skip
        self.engine = Engine(self.coordinator, self, self, on_bad_gradient)
        self.times = WorkerTimes(spans)
        self.now_s = 0.0
        self.compute = DurationSampler(cluster.compute, seed, 1, cluster.speeds)
        self.serving = DurationSampler(cluster.server, seed, 2)
        messages = message_sizes(strategy, message_bytes) if gradients is None else gradients.messages
        self.links = None if network is None else Links(network, seed, messages)
        self._fetch_last = strategy.make_exchange.fetch_last
        self._heap: list[tuple[float, int, Callable[[int, Any], None], int, int, Any]] = []
        self._number, self._server_free_s = 0, 0.0
        self.tasks: dict[int, list[Compute]] = {}
        """Tasks that a worker was given and has not computed yet."""
        self._pulled: dict[int, int] = {}
        self._rounds: dict[int, tuple[int, int, Any]] = {}
        """For each group its round, and the version and parameters of the round's first fetch."""
        self._early: list[tuple[int, int, tuple[Compute, int, float]]] = []
        """Fetches of an update that is not made yet: worker, incarnation, and what `_send` is called with."""
        self.slower_s: dict[int, float] = {}
        """Seconds by which a worker's step is slowed down."""
        self._faults = FaultSchedule(self, faults, seed)
        self._incarnations, self._hanging = self._faults.incarnations, self._faults.hanging
        self._over = False

    def run(self) -> None:
        """Runs until every batch of every epoch is done."""
        # Millions of small objects and no cycles among them: looking for some would take half of the time.
        pauses = self.gradients is None and gc.isenabled()
        if pauses:
            gc.disable()
        try:
            self._run()
        finally:
            if pauses:
                gc.enable()
            self._heap.clear()  # its handlers and we hold each other, and gradients hold much
            self.observer = None  # it may hold us, too

    def _run(self) -> None:
        self.engine.joined(*self._faults.begin(self.workers))
        self._faults.meet_faults()
        heap, alive, count = self._heap, self._incarnations, 0
        while not self._over:
            if not heap:
                updates = self.coordinator.version
                raise PacelineError(f"after {self.now_s:g} virtual seconds and {updates} updates no worker is left")
            when_s, _, handle, worker, incarnation, what = heappop(heap)
            if incarnation == ALWAYS or alive.get(worker) == incarnation:
                self.now_s = when_s
                handle(worker, what)
            count += 1
            if self.observer is not None and (self.gradients is not None or not count % CHECK_EVERY):
                self.observer.advanced()
        self.times.end(self.now_s)

    def at(self, when_s: float, handle: Callable[[int, Any], None], worker: int, incarnation: int, what: Any) -> None:
        self._number += 1
        heappush(self._heap, (when_s, self._number, handle, worker, incarnation, what))

    # The store, as slow as the simulated server is

    def commit(self, order: Apply) -> bool:
        if self.serving.zero:
            self._make(order)
            return True
        start_s = max(self.now_s, self._server_free_s)
        payloads = sum(len(contribution.tasks) for contribution in order.contributions)
        self._server_free_s = start_s + sum(self.serving.next(0) for _ in range(payloads))
        self.times.server_s += self._server_free_s - start_s
        if self.times.tracing:
            self.times.span("server", "apply", start_s, self._server_free_s, f"update {order.update}")
        self.at(self._server_free_s, self._served, 0, ALWAYS, order)
        return False

    def _served(self, _: int, order: Apply) -> None:
        self._make(order)
        self.engine.applied(order)

    def _make(self, order: Apply) -> None:
        if self.gradients is not None:
            self.gradients.apply(order)
        self._faults.updated()
        self.ask_again()
        if self.observer is not None:
            self.observer.updated(order.update)

    def ask_again(self) -> None:
        """Once what happens now is dealt with, a round may be over whose update a fetch waits for."""
        early, self._early = self._early, []
        for worker, incarnation, where in early:
            self.at(self.now_s, self._send, worker, incarnation, where)

    def discard(self, task: Compute, refused: bool) -> None:
        self.ask_again()
        if refused:
            note = f"not finite, epoch {task.epoch + 1}, batch {task.batches[0]}"
            self.times.fault(self.now_s, "refused", task.worker, task.sequence, note)

    # The transport

    def release(self, worker: int, sequence: int) -> None:
        if self.gradients is not None:
            self.gradients.release(worker, sequence)

    def announce(self, epoch: int) -> None:
        if self.gradients is not None:
            self.gradients.end_epoch(epoch)
        if self.observer is not None:
            self.observer.epoch_done(epoch)
        self._over = self.coordinator.finished

    def assign(self, task: Compute) -> None:
        tasks = self.tasks[task.worker]
        tasks.append(task)
        if len(tasks) == 1 and task.worker not in self._hanging:
            self._continue(task.worker, (task, 0))

    # A task

    def _continue(self, worker: int, where: tuple[Compute, int]) -> None:
        """Computes from a position of a task to its next fetch, or to its end."""
        task, position = where
        if position not in task.fetches or not self._ask(worker, task, position):
            self._compute(worker, task, position)

    def _ask(self, worker: int, task: Compute, position: int) -> bool:
        """A worker fetches the parameters; whether that takes time, so that `_received` continues."""
        if self.links is None:
            self._note_fetch(task, position)
            return False
        asked_s = self.links.asked(worker, self.now_s)
        self.at(asked_s, self._send, worker, self._incarnations[worker], (task, position, self.now_s))
        return True

    def _compute(self, worker: int, task: Compute, position: int) -> None:
        seconds, end, steps = self.compute.next(worker), position + 1, len(task.batches)
        while end < steps and end not in task.fetches:
            seconds += self.compute.next(worker)
            end += 1
        if self._turns > 1:  # each phase is taken to be an equal part of a step
            seconds /= self._turns
        if self.slower_s:
            seconds += self.slower_s.get(worker, 0.0) * (end - position)
        now_s = self.now_s
        mine = self.times.workers[worker]
        mine.computing_s += seconds
        mine.busy_until_s = now_s + seconds
        if self.times.tracing:
            mine.span = self.times.span(f"worker {worker}", "compute", now_s, now_s + seconds)
        self._number += 1
        handle = self._computed if end == steps else self._continue
        heappush(self._heap, (now_s + seconds, self._number, handle, worker, self._incarnations[worker], (task, end)))

    def _send(self, worker: int, where: tuple[Compute, int, float]) -> None:
        """The server answers a fetch; what it sends is what it has at this moment, or what the task's round has."""
        assert self.links is not None
        task, position, _ = where
        if not self.coordinator.may_fetch(task):
            self._early.append((worker, self._incarnations[worker], where))
            return
        self._note_fetch(task, position)
        whole = self.strategy.fragments is None or task.whole
        received_s = self.links.received(worker, self.now_s, whole=whole)
        self.at(received_s, self._received, worker, self._incarnations[worker], where)

    def _received(self, worker: int, where: tuple[Compute, int, float]) -> None:
        task, position, asked_s = where
        self._charge(worker, "fetch", asked_s)
        if position < len(task.batches):
            self._compute(worker, task, position)
        else:
            self._push(worker, task)

    def _charge(self, worker: int, what: str, since_s: float) -> None:
        self.times.workers[worker].communicating_s += self.now_s - since_s
        if self.times.tracing:
            self.times.span(f"worker {worker}", what, since_s, self.now_s)

    def _note_fetch(self, task: Compute, position: int) -> None:
        """All fetches of a round find what its first one found; other fetches find the newest version."""
        worker, version = task.worker, self.coordinator.version
        parameters = None if self.gradients is None else self.gradients.current
        if task.round is not None and position < len(task.batches):
            group = self.coordinator.members[worker].group.number
            begun = self._rounds.get(group)
            if begun is None or begun[0] != task.round:
                begun = self._rounds[group] = task.round, version, parameters
            version, parameters = begun[1], begun[2]
        self._pulled[worker] = version
        if self.gradients is not None:
            assert parameters is not None
            self.gradients.fetched(worker, position, version, parameters)

    def _computed(self, worker: int, where: tuple[Compute, int]) -> None:
        """All steps are done; some exchanges fetch once more before they push."""
        task, position = where
        if not (self._fetch_last and self._ask(worker, task, position)):
            self._push(worker, task)

    def _push(self, worker: int, task: Compute) -> None:
        """The payload goes to the server; a worker that overlaps continues with its next task meanwhile."""
        self.times.workers[worker].batches += len(task.batches)
        pulled, finite = self._pulled[worker], True
        if self.gradients is not None:
            pulled, finite = self.gradients.finished(task)
        tasks = self.tasks[worker]
        if self.links is None:
            tasks.pop(0)
            self.engine.pushed(worker, task.sequence, pulled, finite)
            return
        arrives_s = self.links.pushed(worker, self.now_s)
        what = (task, pulled, finite, self.now_s)
        if self._overlap:
            tasks.pop(0)
            self.at(arrives_s, self._arrived, worker, self._incarnations[worker], what)
            if tasks:
                self._continue(worker, (tasks[0], 0))
        else:
            self.at(arrives_s, self._copied, worker, self._incarnations[worker], what)

    def _copied(self, worker: int, what: tuple[Compute, int, bool, float]) -> None:
        self.tasks[worker].pop(0)
        self._charge(worker, "push", what[3])
        self._arrived(worker, what)

    def _arrived(self, worker: int, what: tuple[Compute, int, bool, float]) -> None:
        self.engine.pushed(worker, what[0].sequence, what[1], what[2])
