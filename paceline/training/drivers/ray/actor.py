"""Code shared by server and worker actors: versions, user modules, and injected faults."""

from __future__ import annotations

import os
import signal
import sys
import time
from importlib import import_module

from paceline.training.drivers.ray.job import Job


class Actor:
    def __init__(self, job: Job) -> None:
        self.job = job
        self.steps = 0
        sys.path.extend(place for place in job.search_path if place not in sys.path)

    def vitals(self) -> tuple[float, int]:
        """The CPU time used and the number of steps finished so far."""
        return time.process_time(), self.steps

    def clock(self) -> float:
        return time.monotonic()

    def node(self) -> str:
        """The id of the actor's node."""
        return str(import_module("ray").get_runtime_context().get_node_id())

    def meet(self, fault: str) -> None:
        """Injects a fault: kill or hang."""
        os.kill(os.getpid(), signal.SIGKILL if fault == "kill" else signal.SIGSTOP)
