"""The processes of a run: started, watched by exit and heartbeat, replaced when they die or hang."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass, replace

from paceline.errors import PacelineError
from paceline.strategy.distribution import Fault as FaultMet
from paceline.testing.faults import Fault
from paceline.train.local.child import DEATHS, Child, failure
from paceline.train.local.doorbell import Doorbell
from paceline.train.local.memory import Memory
from paceline.train.local.settings import Settings
from paceline.train.local.shard_crew import ShardCrew
from paceline.train.local.words import LINE, SLOT_WORDS, Control, Of

WORKER = "paceline.train.local.worker_process"
SERVER = "paceline.train.local.server_process"
FAULTS_KEPT = 1000


@dataclass(frozen=True)
class Patience:
    """How long a process may be silent."""

    worker_s: float = 30.0
    start_s: float = 180.0
    server_s: float = 60.0


class Crew:
    def __init__(
        self, memory: Memory, settings: Settings, devices: list[str], patience: Patience, faults: tuple[Fault, ...]
    ) -> None:
        self.memory, self.settings, self.devices, self.patience = memory, settings, devices, patience
        self.began_s = time.monotonic()
        self.bell_of_server = Doorbell(memory, settings.workers, settings.wake_server)
        self.met: list[FaultMet] = []
        self.met_count = 0
        self.lives = [0] * settings.workers
        self.fruitless = [0] * settings.workers
        """Lives in a row that ended without a finished task."""
        self.server_lives, self.server_fruitless, self.version_at_start = 0, 0, 0
        self.to_inject = sorted((f for f in faults if f.what in ("kill", "hang")), key=lambda f: f.at)
        self.workers: list[Child] = []
        self.shards = ShardCrew(memory, settings, patience)
        self.server: Child | None = None
        self.started_ns = [0] * settings.workers
        self.server_started_ns = 0
        self.lives_s: list[list[tuple[float, float]]] = [[] for _ in range(settings.workers)]
        """Of each worker: from when to when it took part, of the lives that are over."""
        self.since_s: list[float | None] = [None] * settings.workers
        """Since when the present life takes part."""

    def start(self) -> None:
        self._start_server()
        self.shards.start()
        for number in range(self.settings.workers):  # each is known at once, and so ended if the next cannot be started
            self.workers.append(self._started(number))

    def _start_server(self) -> None:
        self.server_lives += 1
        control = self.memory.control
        control[Control.SERVER_LIFE] = self.server_lives
        self.version_at_start = control[Control.VERSION]
        self.memory.forget(self.settings.workers)
        self.server_started_ns = time.monotonic_ns()
        settings = replace(self.settings, number=self.settings.workers, life=self.server_lives, threads=1, device="cpu")
        self.server = Child(SERVER, settings)

    def _started(self, number: int) -> Child:
        self.lives[number] += 1
        slot = number * SLOT_WORDS
        slots = self.memory.slots
        slots[slot + Of.TASKS] = 0
        slots[slot + Of.LIFE] = self.lives[number]
        self.memory.forget(number)
        self.started_ns[number] = time.monotonic_ns()
        return Child(
            WORKER, replace(self.settings, number=number, life=self.lives[number], device=self.devices[number])
        )

    @property
    def alive(self) -> int:
        """Workers that take part at the moment."""
        slots = self.memory.slots
        joined = (slots[w * SLOT_WORDS + Of.JOINED] for w in range(len(self.workers)))
        return sum(life == now for life, now in zip(joined, self.lives, strict=True))

    def there_s(self, number: int, start_s: float, end_s: float) -> float:
        """For how long between two moments a worker took part: not while it was dead, or being started."""
        lives = [*self.lives_s[number]]
        since_s = self.since_s[number]
        if since_s is not None:
            lives.append((since_s, end_s))
        return sum(max(0.0, min(last_s, end_s) - max(first_s, start_s)) for first_s, last_s in lives)

    @property
    def complete(self) -> bool:
        """Whether everyone has begun."""
        server_is_there = self.memory.control[Control.SERVER_READY] == self.server_lives and self.shards.complete
        return server_is_there and self.alive == len(self.workers)

    def look(self) -> None:
        """Replaces who died or hangs; raises when that is no use."""
        assert self.server is not None
        now_ns = time.monotonic_ns()
        if self.server.ended():
            self._server_ended(self.server.how_it_ended())
        elif self._silent_s(now_ns, self.memory.control[Control.SERVER_BEAT], self.server_started_ns) > (
            self._server_patience_s()
        ):
            self.server.kill()
            self._server_ended("was silent for too long", "server hung")
        self.shards.look(now_ns, self.note)
        for number, child in enumerate(self.workers):
            if child.ended():
                self._worker_ended(number, child.how_it_ended())
                continue
            words = self.memory.slots[number * SLOT_WORDS : (number + 1) * SLOT_WORDS]
            joined = words[Of.JOINED] == self.lives[number]
            if joined and self.since_s[number] is None:
                self.since_s[number] = now_ns / 1e9
            limit_s = self.patience.worker_s if joined else self.patience.start_s
            if self._silent_s(now_ns, words[Of.BEAT], self.started_ns[number]) > limit_s:
                child.kill()
                self._worker_ended(number, f"was silent for more than {limit_s:g} s", "hung")
        self._inject()

    def _server_patience_s(self) -> float:
        ready = self.memory.control[Control.SERVER_READY] == self.server_lives
        return self.patience.server_s if ready else self.patience.start_s

    @staticmethod
    def _silent_s(now_ns: int, beat_ns: int, started_ns: int) -> float:
        return (now_ns - max(beat_ns, started_ns)) / 1e9

    def _worker_ended(self, number: int, how: str, what: str = "died") -> None:
        child, slot, slots = self.workers[number], number * SLOT_WORDS, self.memory.slots
        since_s, self.since_s[number] = self.since_s[number], None
        if since_s is not None:
            self.lives_s[number].append((since_s, slots[slot + Of.BEAT] / 1e9))
        told = self.memory.told(number)
        if told:
            raise failure(f"worker {number}: {told}", child.process.returncode)
        if not slots[slot + Of.TASKS]:
            self.fruitless[number] += 1
            if self.fruitless[number] >= DEATHS:
                raise PacelineError(f"worker {number} {how}, {DEATHS} times in a row without finishing a task")
        else:
            self.fruitless[number] = 0
        self.note(what, number, how)
        self.memory.readers[number * LINE] = 0
        slots[slot + Of.DEAD] = self.lives[number]
        self.bell_of_server.ring()
        self.workers[number] = self._started(number)

    def _server_ended(self, how: str, what: str = "server died") -> None:
        assert self.server is not None
        told = self.memory.told(self.settings.workers)
        if told:
            raise failure(told, self.server.process.returncode)
        stuck = self.memory.control[Control.VERSION] == self.version_at_start
        self.server_fruitless = self.server_fruitless + 1 if stuck else 0
        if self.server_fruitless >= DEATHS:
            raise PacelineError(f"the server {how}, {DEATHS} times in a row without an update")
        self.note(what, None, how)
        self._start_server()

    def note(self, what: str, worker: int | None, note: str, step: int | None = None) -> None:
        self.met_count += 1
        if len(self.met) < FAULTS_KEPT:
            self.met.append(FaultMet(time.monotonic() - self.began_s, what, worker, step, note))

    def _inject(self) -> None:
        """Faults that were asked for and are due. Who is being started is left alone until it works."""
        version = self.memory.control[Control.VERSION]
        for fault in [fault for fault in self.to_inject if fault.at <= version]:
            child, works = self._struck(fault)
            if child is not None and works and not child.ended():
                self.to_inject.remove(fault)
                os.kill(child.process_id, signal.SIGKILL if fault.what == "kill" else signal.SIGSTOP)
                if fault.what == "kill":
                    child.process.wait()  # so that the next fault finds who replaces it

    def _struck(self, fault: Fault) -> tuple[Child | None, bool]:
        """Whom a fault is for, and whether that one works already."""
        if fault.shard:
            return self.shards.children[fault.shard], self.shards.is_working(fault.shard)
        if fault.worker is None:
            return self.server, self.memory.control[Control.SERVER_READY] == self.server_lives
        joined = self.memory.slots[fault.worker * SLOT_WORDS + Of.JOINED]
        return self.workers[fault.worker], joined == self.lives[fault.worker]

    def stop(self) -> None:
        """Ends all of them, and waits until they are gone."""
        children = [*self.workers, *self.shards.children.values(), *([self.server] if self.server is not None else [])]
        for child in children:
            with contextlib.suppress(OSError):
                child.process.kill()
        for child in children:
            child.process.wait()
