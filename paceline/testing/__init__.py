"""What tests of distributed training need: faults at chosen or random points of a run."""

from __future__ import annotations

from paceline.testing.faults import Fault, random_kills

__all__ = ["Fault", "random_kills"]
