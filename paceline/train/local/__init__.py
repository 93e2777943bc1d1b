"""The local driver: server and workers are processes of this machine, parameters are in shared memory."""

from __future__ import annotations

from paceline.train.local.launcher import resume, run

__all__ = ["resume", "run"]
