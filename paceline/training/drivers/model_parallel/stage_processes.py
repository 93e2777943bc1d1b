"""The processes of a divided network, as their launcher has them: all work on one message at a time.

If one dies or hangs the others cannot continue, so all are ended and the run fails with one error.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from paceline.errors import InputError, PacelineError
from paceline.fork_server import Forked
from paceline.training.drivers.local.hang_detection import Silence
from paceline.training.drivers.local.process_server import process_server
from paceline.training.drivers.model_parallel.messages import Channel, Failed, Ready
from paceline.training.drivers.model_parallel.process_settings import DividedSettings
from paceline.training.settings import DriverSettings

POLL_S = 0.05
LOOK_FOR_HANGS_EVERY_S = 0.5
BLAME_WITHIN_S = 2.0
"""After one process failed because its connection to another broke, that other one is found dead within this time."""
CHILD = "paceline.training.drivers.model_parallel.child"


class LostProcess(PacelineError):
    """A process died or hangs; the run can be resumed from its last checkpoint."""


class StageProcesses:
    def __init__(self, settings: DividedSettings, limits: DriverSettings) -> None:
        self.limits = limits
        self.settings = [replace(settings, rank=rank) for rank in range(settings.world)]
        self.channels: list[Channel] = []
        self.processes: list[Forked] = []
        self.silences: list[Silence] = []
        self.started = False

    def start(self) -> list[Ready]:
        """Starts all of them and waits until they have found each other."""
        for settings in self.settings:
            ours, theirs = socket.socketpair()
            with theirs:
                self.channels.append(Channel(ours))
                forked = process_server().fork(f"{CHILD}:run", settings.text(), [theirs.fileno()], [CHILD])
            self.processes.append(forked)
            self.silences.append(Silence(forked.process_id, time.monotonic()))
        answers: list[Ready] = self._answers()
        self.started = True
        return answers

    def ask(self, message: Any) -> list[Any]:
        """Sends a message to all, and returns their answers by rank."""
        for rank, channel in enumerate(self.channels):
            try:
                channel.send(message)
            except OSError:
                self._lost(rank, "died")
        now_s = time.monotonic()
        for silence in self.silences:
            silence.seen(now_s, 0)
        return self._answers()

    def _answers(self) -> list[Any]:
        answers: dict[int, Any] = {}
        checked_s = time.monotonic()
        while len(answers) < len(self.channels):
            waiting = [rank for rank in range(len(self.channels)) if rank not in answers]
            for rank in waiting:
                if self.channels[rank].ready(POLL_S / len(waiting)):
                    answers[rank] = self._received(rank)
            if time.monotonic() - checked_s >= LOOK_FOR_HANGS_EVERY_S:
                checked_s = time.monotonic()
                self._check(waiting)
        return [answers[rank] for rank in range(len(self.channels))]

    def _received(self, rank: int) -> Any:
        try:
            answer = self.channels[rank].receive()
        except EOFError:
            self._lost(rank, "died")
        if isinstance(answer, Failed):
            self._blame_dead(other_than=rank)
            kind = InputError if answer.exit_code == InputError.exit_code else PacelineError
            raise kind(f"{self.settings[rank].who}: {answer.message}")
        return answer

    def _check(self, waiting: Sequence[int]) -> None:
        """Ends the run when a process is stopped, or when none of those that are waited for does anything."""
        now_s = time.monotonic()
        verdicts = {
            rank: self.silences[rank].hung(now_s, self.limits, working=self.started)
            for rank in waiting
            if self.processes[rank].poll() is None
        }
        found = {rank: verdict for rank, verdict in verdicts.items() if verdict is not None}
        stopped = [rank for rank, verdict in found.items() if "stopped_timeout" in verdict]
        if stopped or (found and len(found) == len(verdicts)):
            rank = stopped[0] if stopped else min(found)
            raise LostProcess(f"{self.settings[rank].who} {found[rank]}")

    def _blame_dead(self, other_than: int) -> None:
        """If a process died, that is what went wrong, whatever the others say."""
        last_s = time.monotonic() + BLAME_WITHIN_S
        while time.monotonic() < last_s:
            for rank, process in enumerate(self.processes):
                ended = process.poll() if rank != other_than else None
                if ended is not None and ended.code < 0:
                    raise LostProcess(f"{self.settings[rank].who} {ended.how}")
                if ended is not None:
                    return
            time.sleep(POLL_S)

    def _lost(self, rank: int, how: str) -> None:
        self.processes[rank].wait()
        ended = self.processes[rank].ended
        raise LostProcess(f"{self.settings[rank].who} {ended.how if ended is not None else how}")

    def stop(self) -> None:
        """Ends all processes and waits until they are gone."""
        for channel in self.channels:
            channel.close()
        for process in self.processes:
            with contextlib.suppress(OSError):
                process.signal(signal.SIGKILL)
        for process in self.processes:
            process.wait()
        self.channels, self.processes, self.silences = [], [], []
