"""The processes of a run: started, watched, and replaced when they die or hang."""

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
from paceline.training.drivers.local.hang_limits import HangLimits, Silence
from paceline.training.drivers.local.process_server import process_server
from paceline.training.drivers.local.settings import ProcessSettings
from paceline.training.drivers.local.shared_memory import SharedMemory

FAULTS_KEPT = 1000
MOST_FAILURES = 5
"""So many in a row without a task or an update in between are not bad luck."""
CHECK_HANGS_EVERY_S = 0.25


class _Supervised:
    """One process through its incarnations."""

    def __init__(self) -> None:
        self.process: Forked | None = None
        self.incarnation = 0
        self.consecutive_failures = 0
        self.silence = Silence(0, 0.0)
        self.alive_s: list[tuple[float, float]] = []
        """From when to when it took part, of the incarnations that are over."""
        self.since_s: float | None = None
        """Since when the present one takes part."""
        self.progress_at_start = 0


class Supervisor:
    def __init__(
        self, memory: SharedMemory, settings: ProcessSettings, bells: Bells, devices: list[str], limits: HangLimits,
        faults: tuple[Fault, ...],
    ) -> None:  # fmt: skip
        self.memory, self.settings, self.bells, self.devices, self.limits = memory, settings, bells, devices, limits
        self.began_s = time.monotonic()
        self.server_bell = Doorbell(memory, settings.workers, bells.server)
        self.recovered: list[FaultRecord] = []
        self.recovered_count = 0
        self.to_inject = sorted((f for f in faults if f.what in ("kill", "hang")), key=lambda f: f.at)
        self.workers = [_Supervised() for _ in range(settings.workers)]
        self.server = _Supervised()
        self._checked_s = 0.0
        self.generations = [0] * memory.sizes.groups
        """How often each group was started again, where it averages with torch.distributed."""

    def start(self) -> None:
        self._start_server()
        for number in range(self.settings.workers):
            self._start_worker(number)

    def _start_server(self) -> None:
        control, server = self.memory.control, self.server
        self._start(server, replace(self.settings, number=self.settings.workers, threads=1, device="cpu"))
        server.progress_at_start = control[ControlField.VERSION]

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

    # How they are doing

    def has_joined(self, number: int) -> bool:
        return self.memory.slot(number)[SlotField.JOINED] == self.workers[number].incarnation

    @property
    def server_is_ready(self) -> bool:
        return self.memory.control[ControlField.SERVER_READY] == self.server.incarnation

    @property
    def alive(self) -> int:
        """Workers that take part at the moment."""
        return sum(self.has_joined(number) for number in range(len(self.workers)))

    @property
    def complete(self) -> bool:
        """Whether everyone has begun."""
        return self.server_is_ready and self.alive == len(self.workers)

    def alive_s(self, number: int, start_s: float, end_s: float) -> float:
        """For how long between two moments a worker took part: not while it was dead, or being started."""
        worker = self.workers[number]
        lives = [*worker.alive_s, *([(worker.since_s, end_s)] if worker.since_s is not None else [])]
        return sum(max(0.0, min(last_s, end_s) - max(first_s, start_s)) for first_s, last_s in lives)

    def check(self) -> None:
        """Replaces who died or hangs; raises when that is no use."""
        now_s = time.monotonic()
        look_for_hangs = now_s - self._checked_s >= CHECK_HANGS_EVERY_S
        if look_for_hangs:
            self._checked_s = now_s
        self._check_server(now_s, look_for_hangs)
        for number in range(len(self.workers)):
            self._check_worker(number, now_s, look_for_hangs)
        self._inject()

    def _check_server(self, now_s: float, look_for_hangs: bool) -> None:
        server = self.server
        assert server.process is not None
        if (ended := server.process.poll()) is not None:
            self._server_ended(ended.how)
        elif look_for_hangs:
            server.silence.seen(self.memory.control[ControlField.SERVER_BEAT] / 1e9, 0)
            verdict = server.silence.verdict(now_s, self.limits, working=self.server_is_ready)
            if verdict is not None:
                server.process.kill()
                self._server_ended(verdict, "server hung")

    def _check_worker(self, number: int, now_s: float, look_for_hangs: bool) -> None:
        worker, slot = self.workers[number], self.memory.slot(number)
        assert worker.process is not None
        if (ended := worker.process.poll()) is not None:
            self._worker_ended(number, ended.how)
            return
        joined = self.has_joined(number)
        if joined and worker.since_s is None:
            worker.since_s = now_s
        if look_for_hangs:
            worker.silence.seen(slot[SlotField.BEAT] / 1e9, slot[SlotField.STEPS])
            working = joined and slot[SlotField.TASKS] > 0
            verdict = worker.silence.verdict(now_s, self.limits, working=working)
            if verdict is not None:
                worker.process.kill()
                self._worker_ended(number, verdict, "hung")

    def _worker_ended(self, number: int, how: str, what: str = "died") -> None:
        worker, slot = self.workers[number], self.memory.slot(number)
        assert worker.process is not None
        reported = self.memory.reported(number)
        if reported:
            raise failure(f"worker {number}: {reported}", worker.process)
        worker.consecutive_failures = 0 if slot[SlotField.TASKS] else worker.consecutive_failures + 1
        if worker.consecutive_failures >= MOST_FAILURES:
            raise PacelineError(f"worker {number} {how}, {MOST_FAILURES} times in a row without finishing a task")
        self.note(what, number, how)
        self._mark_dead(number)
        if self.settings.collective != "shared":
            self.generations[self.settings.strategy.group_of(number, self.settings.workers)] += 1
        self._start_worker(number)
        if self.settings.collective != "shared":
            self._restart_group(number)

    def _mark_dead(self, number: int) -> None:
        worker, slot = self.workers[number], self.memory.slot(number)
        if worker.since_s is not None:
            worker.alive_s.append((worker.since_s, slot[SlotField.BEAT] / 1e9))
            worker.since_s = None
        slot[SlotField.DEAD] = worker.incarnation
        self.server_bell.notify()

    def _restart_group(self, number: int) -> None:
        """torch.distributed cannot continue without a member: the whole group starts again."""
        mine = self.settings.strategy.group_of(number, self.settings.workers)
        for other, worker in enumerate(self.workers):
            same = self.settings.strategy.group_of(other, self.settings.workers) == mine
            if same and other != number and worker.process is not None:
                worker.process.kill()
                self._mark_dead(other)
                self.note("restarted", other, f"with worker {number} of its group")
                self._start_worker(other)

    def _server_ended(self, how: str, what: str = "server died") -> None:
        server = self.server
        assert server.process is not None
        reported = self.memory.reported(self.settings.workers)
        if reported:
            raise failure(reported, server.process)
        stuck = self.memory.control[ControlField.VERSION] == server.progress_at_start
        server.consecutive_failures = server.consecutive_failures + 1 if stuck else 0
        if server.consecutive_failures >= MOST_FAILURES:
            raise PacelineError(f"the server {how}, {MOST_FAILURES} times in a row without an update")
        self.note(what, None, how)
        self._start_server()

    def note(self, what: str, worker: int | None, note: str, step: int | None = None) -> None:
        self.recovered_count += 1
        if len(self.recovered) < FAULTS_KEPT:
            self.recovered.append(FaultRecord(time.monotonic() - self.began_s, what, worker, step, note))

    def _inject(self) -> None:
        """Faults that were asked for and are due. Who is being started is left alone until it works."""
        version = self.memory.control[ControlField.VERSION]
        for fault in [fault for fault in self.to_inject if fault.at <= version]:
            one = self.server if fault.worker is None else self.workers[fault.worker]
            works = self.server_is_ready if fault.worker is None else self.has_joined(fault.worker)
            if one.process is not None and works and one.process.poll() is None:
                self.to_inject.remove(fault)
                one.process.signal(signal.SIGKILL if fault.what == "kill" else signal.SIGSTOP)
                if fault.what == "kill":
                    one.process.wait()  # so that the next fault finds who replaces it

    def stop(self) -> None:
        """Ends all of them, and waits until they are gone."""
        processes = [one.process for one in (*self.workers, self.server) if one.process is not None]
        for process in processes:
            with contextlib.suppress(OSError):
                process.signal(signal.SIGKILL)
        for process in processes:
            process.wait()
