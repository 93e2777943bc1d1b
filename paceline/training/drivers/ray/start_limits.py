"""Limits how long a run may be without workers, and detects early that they cannot start."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paceline.errors import PacelineError
from paceline.training.drivers.ray.connection import Shares, check_room
from paceline.training.drivers.ray.messages import Status
from paceline.training.drivers.ray.worker_handle import WorkerHandle

ROOM_EVERY_S = 3.0
"""How often the room is counted until all workers have begun: a node that died is listed for a while."""


class StartLimits:
    """The caller supplies the time, so tests can fake it."""

    def __init__(self, ray: Any, shares: Shares, start_timeout_s: float, now_s: float) -> None:
        self.ray, self.shares, self.limit_s = ray, shares, start_timeout_s
        self._alone_since_s = self._counted_s = now_s

    def check(self, status: Status, workers: Sequence[WorkerHandle], now_s: float) -> None:
        """Raises an error if workers do not start or do not fit, or if there was no worker for too long."""
        if status.began_ago_s is None:
            self._check_room(workers, now_s)
            for number, worker in enumerate(workers):
                if now_s - worker.started_s > self.limit_s:
                    raise PacelineError(
                        f"worker {number} did not start within {self.limit_s:g} s (start_timeout): "
                        "the cluster may be busy with other work; see `ray status`"
                    )
        if status.alive or status.finished or not status.begun:
            self._alone_since_s = now_s
        elif now_s - self._alone_since_s > self.limit_s:
            raise PacelineError(
                f"no worker was alive for {self.limit_s:g} s (start_timeout): the cluster has no room for one"
            )

    def _check_room(self, workers: Sequence[WorkerHandle], now_s: float) -> None:
        """Workers that have died are not counted: the run continues without them."""
        if now_s - self._counted_s >= ROOM_EVERY_S:
            self._counted_s = now_s
            check_room(self.ray, sum(worker.incarnation <= 1 for worker in workers), self.shares)
