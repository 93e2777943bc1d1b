"""Server and workers of a run as objects of one process: a test says who does what when, and who dies at which line."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from types import FrameType
from typing import Any

import numpy as np
import torch

from paceline.step.optimizers import Rule
from paceline.strategy.instructions import Compute
from paceline.strategy.strategy import Strategy
from paceline.strategy.updater import Updater
from paceline.training.drivers.local import batch_status, mailbox
from paceline.training.drivers.local.child import Bells
from paceline.training.drivers.local.fields import LINE, ControlField, HeaderField, PayloadField, SlotField
from paceline.training.drivers.local.preparation import sizes_of, why_server_commits
from paceline.training.drivers.local.recovery import recover
from paceline.training.drivers.local.server import Server
from paceline.training.drivers.local.settings import ProcessSettings
from paceline.training.drivers.local.shared_memory import SharedMemory
from paceline.training.drivers.local.store import SharedStore
from paceline.training.drivers.local.worker import Worker
from paceline.training.drivers.local.worker_store import WorkerStore
from paceline.training.drivers.local.writer_lock import WriterLock
from tests.strategy.flat_vectors import layout, vector
from tests.training.drivers.local.small import workload

SIZE = 5


class Stage:
    def __init__(
        self, strategy: Strategy, workers: int, batches: int, epochs: int, *, record_events: bool = False,
        policy: str = "skip", optimizer: str = "momentum", collective: str = "shared",
    ) -> None:  # fmt: skip
        self.strategy, self.workers = strategy, workers
        self.layout = layout(SIZE, rule=Rule(optimizer, 0.1), batches=batches, epochs=epochs)
        self.commits = not why_server_commits(strategy, self._updater(), workers, "cpu", collective)
        sizes = sizes_of(strategy, self.layout, workers, record_events=record_events, workers_commit=self.commits)
        if self.commits:
            sizes = replace(sizes, places=2)  # a snapshot after every other update of a worker
        self.memory = SharedMemory(sizes)
        self.memory.control[ControlField.EPOCHS_TAKEN] = epochs  # the launcher is never waited for
        self.descriptors = [os.eventfd(0, os.EFD_NONBLOCK) for _ in range(workers + 2)]
        self.bells = Bells(self.descriptors[0], self.descriptors[1], tuple(self.descriptors[2:]))
        self.settings = ProcessSettings(
            sizes=self.memory.sizes, strategy=strategy, layout=self.layout, workload=workload(),
            workers=workers, threads=1, number=workers, incarnation=1, device="cpu", cache="", search_path=(),
            on_bad_gradient=policy,
        )  # fmt: skip
        self.incarnations, self.done = [0] * workers, [0] * workers
        self.locals = [torch.zeros(SIZE) for _ in range(workers + 1)]
        """What each worker has fetched."""
        self.computed = [torch.zeros(sizes.payload) for _ in range(workers + 1)]
        """Its last payload."""
        self.stores = [self.new_store(worker) for worker in range(workers)]
        self.start_server()

    def _updater(self) -> Updater:
        return Updater(self.strategy, self.layout, self.workers)

    def new_store(self, who: int) -> WorkerStore:
        store = WorkerStore(self.memory, who, self._updater())
        store.fetched = self.locals[who]
        store.payload.copy_(self.computed[who])
        return store

    # The server

    def start_server(self) -> None:
        """The first, or a successor: it knows nothing but what is in the memory."""
        self.server = Server(self.settings, self.memory, self.bells)
        with self.server.store.lock:
            self.server._finish_epochs()
            recover(self.server)
        self.poll()

    def poll(self) -> None:
        while self.server._poll():
            pass

    # A worker

    def word(self, worker: int, field: int) -> int:
        return self.memory.slot(worker)[field]

    def group(self, worker: int) -> int:
        return self.strategy.group_of(worker, self.workers)

    def members(self, worker: int) -> list[int]:
        return [other for other in range(self.workers) if self.group(other) == self.group(worker)]

    def round(self, group: int) -> int:
        return self.memory.header[HeaderField.ROUNDS + group]

    def join(self, *workers: int) -> None:
        for worker in workers:
            slot = self.memory.slot(worker)
            self.incarnations[worker] += 1
            self.done[worker] = slot[SlotField.GIVEN]
            self.stores[worker] = self.new_store(worker)
            slot[SlotField.INCARNATION] = self.incarnations[worker]
            slot[SlotField.PUSHED], slot[SlotField.WANTED] = 0, 2
            slot[SlotField.JOINED] = self.incarnations[worker]

    def kill(self, worker: int) -> None:
        self.memory.slot(worker)[SlotField.DEAD] = self.incarnations[worker]

    def is_alive(self, worker: int) -> bool:
        return self.word(worker, SlotField.DEAD) < self.incarnations[worker]

    def task(self, worker: int) -> Compute | None:
        """What a worker has in hand."""
        found = mailbox.next_tasks(self.memory, worker, self.incarnations[worker], self.done[worker])
        return found[0] if found else None

    def may(self, worker: int) -> bool:
        """Whether it has a task and may begin with it."""
        task = self.task(worker)
        if task is None or not self.is_alive(worker):
            return False
        worker_process = Worker.__new__(Worker)
        worker_process.memory, worker_process.number, worker_process.settings = self.memory, worker, self.settings
        worker_process.words, worker_process.commits = self.memory.slot(worker), self.commits
        worker_process.group = self.group(worker)
        return worker_process._is_turn(task)

    def compute(self, worker: int, finite: bool = True) -> Compute:
        """All of a task but its push. The payload depends on nothing but the batches."""
        task, store = self.task(worker), self.stores[worker]
        assert task is not None
        place, into = self.memory.place(task.sequence), torch.empty(SIZE)
        number = task.round
        pulled = store.read(into) if number is None else store.read_for_round(into, self.group(worker), number)
        if self.memory.fetched:
            self.memory.fetched[worker][place].copy_(into)
        self.locals[worker].copy_(into)
        self.memory.fetched_versions[worker, place, 0] = pulled
        payload = self.computed[worker].copy_(vector(SIZE, 1000 * task.epoch + task.batches[0]))
        if not finite:
            payload[0] = torch.nan
        (store.payload if self.commits else self.memory.payloads[worker][place]).copy_(payload)
        slot, line = self.memory.slot(worker), SlotField.PAYLOAD + place * LINE
        slot[line + PayloadField.SAMPLES], slot[line + PayloadField.PULLED] = 8 * len(task.batches), pulled
        slot[line + PayloadField.FETCHES], slot[line + PayloadField.FINITE] = 1, finite
        return task

    def push(self, worker: int, task: Compute, finite: bool = True) -> None:
        """As `Worker._commit` and `Worker._push` end a task."""
        slot, store = self.memory.slot(worker), self.stores[worker]
        line = SlotField.PAYLOAD + self.memory.place(task.sequence) * LINE
        if self.commits:
            if task.round is not None:
                store.push_to_round(task, self.group(worker), self.members(worker))
            elif finite:
                store.commit_own(task, self.group(worker), slot[line + PayloadField.PULLED])
            else:
                store.refuse_own(task)
        else:
            slot[line + PayloadField.READY] = task.sequence
        slot[SlotField.TASKS] += 1

    def step(self, worker: int, finite: bool = True) -> bool:
        """The worker does its next task, if it may."""
        if not self.may(worker):
            if self.commits and self.is_alive(worker) and (task := self.task(worker)) and task.round is not None:
                self.stores[worker].commit_round(self.group(worker), self.members(worker))  # as it does when it is late
            return False
        task = self.compute(worker, finite)
        self.push(worker, task, finite)
        self.done[worker] = task.sequence
        return True

    def finish(self, most: int = 200) -> None:
        """All do what they can until the run is over."""
        for _ in range(most):
            if self.server.coordinator.finished:
                return
            for worker in range(self.workers):
                self.step(worker)
            self.poll()
        raise AssertionError("the run does not end")

    # What there is

    @property
    def version(self) -> int:
        return self.memory.version

    @property
    def parameters(self) -> torch.Tensor:
        return self._any_store().newest()[0].clone()

    def _any_store(self) -> SharedStore:
        """That of a process which has just started."""
        return SharedStore(self.memory, self.workers, self._updater())

    def counts(self, epoch: int) -> tuple[int, int, int]:
        return batch_status.counts(self.memory, epoch)

    def closed(self, epoch: int) -> list[int]:
        return np.flatnonzero(batch_status.closed(self.memory, epoch)).tolist()

    def content(self) -> dict[str, Any]:
        """All that belongs to the newest version, as whoever takes the lock next finds it."""
        memory, groups = self.memory, self.memory.sizes.groups
        with WriterLock(memory):
            version = self.version
            parameters, state = self._any_store().newest()
            header, first = memory.header.tolist(), memory.sizes.correction_word
            epochs = batch_status.begun(memory)
            found = {
                "version": version,
                "parameters": parameters.tolist(),
                "state": {name: tensor.tolist() for name, tensor in state.items()},
                "corrections": [
                    {name: tensor.tolist() for name, tensor in kept[header[first + group]].items()}
                    for group, kept in enumerate(memory.corrections)
                ],
                "rounds": header[HeaderField.ROUNDS : first],
                "staleness": header[first + groups :],
                "counts": {epoch: self.counts(epoch) for epoch in epochs},
            }
            if self.commits:
                found["log"] = header[HeaderField.EVENTS]
            found["closed"] = {epoch: batch_status.closed_count(memory.header, epoch) for epoch in epochs}
        return found

    def assert_every_batch_counts_once(self) -> None:
        """At the end: in the ledger, in the updates, in the rounds and in the staleness counts."""
        memory, sizes = self.memory, self.memory.sizes
        assert memory.totals.sum(axis=1).tolist() == [sizes.batches] * sizes.epochs
        contributions = sum(memory.header[sizes.staleness_word :].tolist())
        if self.strategy.softsync_n is None:
            assert contributions == self.version
        rounds = sum(self.round(group) for group in range(sizes.groups))
        assert rounds == contributions or (memory.control[ControlField.REFUSALS] and rounds > contributions)
        assert self.server.coordinator.ledger.summary().applied == memory.totals[:, 0].sum()

    def saved(self) -> tuple[bytes, list[torch.Tensor]]:
        assert self.memory._bytes is not None
        return self.memory._bytes[:], [local.clone() for local in self.locals]

    def restore(self, saved: tuple[bytes, list[torch.Tensor]]) -> None:
        assert self.memory._bytes is not None
        self.memory._bytes[:], locals_ = saved
        for mine, kept in zip(self.locals, locals_, strict=True):
            mine.copy_(kept)
        for store in (*self.stores, self.server.store):
            if store.replica is not None:
                store.replica.version = -1

    def close(self) -> None:
        for descriptor in self.descriptors:
            os.close(descriptor)
        self.memory.close()


class Died(BaseException):
    """In place of a process's death: nothing after it is executed but what gives its locks back, as the kernel does."""


def dies_at(number: int, work: Callable[[], object], *, opcodes: bool = False) -> bool:
    """Executes `work` until line `number` of the driver's code, or that instruction; whether it was before its end."""
    event_of_interest, count = "opcode" if opcodes else "line", 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        code = frame.f_code
        if (
            "/paceline/training/drivers/local/" not in code.co_filename or code.co_name == "fence"
        ):  # its lock dies with it
            return None
        frame.f_trace_opcodes = opcodes
        if event == event_of_interest:
            if count == number:
                raise Died
            count += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    except Died:
        return True
    finally:
        sys.settrace(before)
    return False
