"""What the server and the workers have in common: versions, the user's modules, and dying on purpose."""

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
        """The CPU time that it has used, and how many steps it has finished."""
        return time.process_time(), self.steps

    def node(self) -> str:
        """The id of the node that it is on."""
        return str(import_module("ray").get_runtime_context().get_node_id())

    def meet(self, fault: str) -> None:
        """A fault on purpose: kill or hang."""
        os.kill(os.getpid(), signal.SIGKILL if fault == "kill" else signal.SIGSTOP)
