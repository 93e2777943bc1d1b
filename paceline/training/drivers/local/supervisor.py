"""Starts and watches the processes of a run, and replaces those that die or hang."""

from __future__ import annotations

import contextlib
import signal
import time
from dataclasses import replace

from paceline.errors import PacelineError
from paceline.fork_server import Forked
from paceline.strategy.distribution import FaultRecord
from paceline.testing.faults import Fault
from paceline.training.drivers.local.child import Bells, failure
from paceline.training.drivers.local.doorbell import Doorbell
from paceline.training.drivers.local.fields import ControlField, SlotField
from paceline.training.drivers.local.hang_detection import Silence
from paceline.training.drivers.local.process_server import process_server
from paceline.training.drivers.local.settings import ProcessSettings
from paceline.training.drivers.local.shared_memory import SharedMemory
from paceline.training.settings import DriverSettings

FAULTS_KEPT = 1000
MOST_FAILURES = 5
"""Consecutive failures without a task or an update in between after which the run fails."""
CHECK_HANGS_EVERY_S = 0.25


class _Supervised:
    """One process through all its incarnations."""

    def __init__(self, number: int | None) -> None:
        self.number = number
        """The worker's; None: it is the server."""
        self.process: Forked | None = None
        self.incarnation = 0
        self.consecutive_failures = 0
        self.silence = Silence(0, 0.0)
        self.alive_s: list[tuple[float, float]] = []
        """Start and end of each earlier incarnation's participation."""
        self.since_s: float | None = None
        """When the present incarnation joined."""
        self.version_at_start = 0


class Supervisor:
    def __init__(
        self, memory: SharedMemory, settings: ProcessSettings, bells: Bells, devices: list[str], limits: DriverSettings,
        faults: tuple[Fault, ...],
    ) -> None:  # fmt: skip
        self.memory, self.settings, self.bells, self.devices, self.limits = memory, settings, bells, devices, limits
        self.began_s = time.monotonic()
        self.server_bell = Doorbell(memory, settings.workers, bells.server)
        self.recovered: list[FaultRecord] = []
        self.recovered_count = 0
        self.to_inject = sorted((f for f in faults if f.what in ("kill", "hang")), key=lambda f: f.at)
        self.workers = [_Supervised(number) for number in range(settings.workers)]
        self.server = _Supervised(None)
        self._checked_s = 0.0
        self.generations = [0] * memory.sizes.groups
        """How often each group was started again, where it averages with torch.distributed."""

    def start(self) -> None:
        self._start_server()
        for number in range(self.settings.workers):
            self._start_worker(number)

    def _start_server(self) -> None:
        self._start(self.server, replace(self.settings, number=self.settings.workers, threads=1, device="cpu"))

    def _start_worker(self, number: int) -> None:
        slot, worker = self.memory.slot(number), self.workers[number]
        slot[SlotField.TASKS] = 0
        slot[SlotField.INCARNATION] = worker.incarnation + 1
        settings = replace(self.settings, number=number, device=self.devices[number])
        if settings.rendezvous:
            settings = replace(
                settings, rendezvous=f"{settings.rendezvous}-{settings.group}-{self.generations[settings.group]}"
            )
        self._start(worker, settings)

    def _start(self, one: _Supervised, settings: ProcessSettings) -> None:
        one.incarnation += 1
        self.memory.clear_report(settings.number)
        descriptors = (self.memory.descriptor, self.bells.launcher, self.bells.server, *self.bells.workers)
        text = replace(settings, incarnation=one.incarnation).text()
        one.process = process_server().fork("paceline.training.drivers.local.child:run", text, descriptors)
        one.silence = Silence(one.process.process_id, time.monotonic())
        one.version_at_start = self.memory.version

    # How they are doing

    def has_joined(self, one: _Supervised) -> bool:
        """Whether the current incarnation has started working."""
        if one.number is None:
            return self.memory.control[ControlField.SERVER_READY] == one.incarnation
        return self.memory.slot(one.number)[SlotField.JOINED] == one.incarnation

    @property
    def alive(self) -> int:
        """Workers that currently take part."""
        return sum(map(self.has_joined, self.workers))

    @property
    def complete(self) -> bool:
        """Whether the server and all workers have started."""
        return self.has_joined(self.server) and self.alive == len(self.workers)

    def alive_s(self, number: int, start_s: float, end_s: float) -> float:
        """How long a worker took part between two moments, not counting when it was dead or starting."""
        worker = self.workers[number]
        lives = [*worker.alive_s, *([(worker.since_s, end_s)] if worker.since_s is not None else [])]
        return sum(max(0.0, min(last_s, end_s) - max(first_s, start_s)) for first_s, last_s in lives)

    def check(self) -> None:
        """Replaces processes that died or hang; raises an error if that does not help."""
        now_s = time.monotonic()
        look_for_hangs = now_s - self._checked_s >= CHECK_HANGS_EVERY_S
        if look_for_hangs:
            self._checked_s = now_s
        for one in (self.server, *self.workers):
            assert one.process is not None
            if (ended := one.process.poll()) is not None:
                self._ended(one, "died", ended.how)
                continue
            if one.since_s is None and self.has_joined(one):
                one.since_s = now_s
            verdict = self._verdict(one, now_s) if look_for_hangs else None
            if verdict is not None:
                one.process.kill()
                self._ended(one, "hung", verdict)
        self._inject()

    def _verdict(self, one: _Supervised, now_s: float) -> str | None:
        """The reason why a process counts as hung, or an empty string."""
        working = self.has_joined(one)
        if one.number is None:
            one.silence.seen(self.memory.control[ControlField.SERVER_BEAT] / 1e9, 0)
        else:
            slot = self.memory.slot(one.number)
            one.silence.seen(slot[SlotField.BEAT] / 1e9, slot[SlotField.STEPS])
            working = working and slot[SlotField.TASKS] > 0
        return one.silence.hung(now_s, self.limits, working=working)

    def _ended(self, one: _Supervised, what: str, how: str) -> None:
        assert one.process is not None
        number, is_server = one.number, one.number is None
        name = "the server" if is_server else f"worker {number}"
        reported = self.memory.reported(self.settings.workers if number is None else number)
        if reported:
            raise failure(reported if is_server else f"{name}: {reported}", one.process)
        if number is None:
            progressed = self.memory.version > one.version_at_start
        else:
            progressed = self.memory.slot(number)[SlotField.TASKS] > 0
        one.consecutive_failures = 0 if progressed else one.consecutive_failures + 1
        if one.consecutive_failures >= MOST_FAILURES:
            without = "an update" if is_server else "finishing a task"
            raise PacelineError(f"{name} {how}, {MOST_FAILURES} times in a row without {without}")
        self.note(f"server {what}" if is_server else what, number, how)
        if number is None:
            self._start_server()
        else:
            self._replace_worker(number)

    def _replace_worker(self, number: int) -> None:
        self._mark_dead(number)
        if self.settings.collective == "shared":
            self._start_worker(number)
            return
        group = self.settings.strategy.group_of(number, self.settings.workers)
        self.generations[group] += 1
        self._start_worker(number)
        for other in self.settings.strategy.members_of(group, self.settings.workers):
            process = self.workers[other].process
            if other != number and process is not None:  # torch.distributed cannot continue without a member
                process.kill()
                self._mark_dead(other)
                self.note("restarted", other, f"with worker {number} of its group")
                self._start_worker(other)

    def _mark_dead(self, number: int) -> None:
        worker, slot = self.workers[number], self.memory.slot(number)
        if worker.since_s is not None:
            worker.alive_s.append((worker.since_s, slot[SlotField.BEAT] / 1e9))
            worker.since_s = None
        slot[SlotField.DEAD] = worker.incarnation
        self.server_bell.notify()

    def note(self, what: str, worker: int | None, note: str, step: int | None = None) -> None:
        self.recovered_count += 1
        if len(self.recovered) < FAULTS_KEPT:
            self.recovered.append(FaultRecord(time.monotonic() - self.began_s, what, worker, step, note))

    def _inject(self) -> None:
        """Injects the faults that are due, into processes that have started working."""
        version = self.memory.version
        for fault in [fault for fault in self.to_inject if fault.at <= version]:
            one = self.server if fault.worker is None else self.workers[fault.worker]
            if one.process is not None and self.has_joined(one) and one.process.poll() is None:
                self.to_inject.remove(fault)
                one.process.signal(signal.SIGKILL if fault.what == "kill" else signal.SIGSTOP)
                if fault.what == "kill":
                    one.process.wait()  # so that the next fault finds who replaces it

    def stop(self) -> None:
        """Ends all processes and waits until they are gone."""
        processes = [one.process for one in (*self.workers, self.server) if one.process is not None]
        for process in processes:
            with contextlib.suppress(OSError):
                process.signal(signal.SIGKILL)
        for process in processes:
            process.wait()
