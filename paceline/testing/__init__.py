"""What tests of distributed training need: faults at chosen or random points of a run, a clock that need not wait."""

from __future__ import annotations

from paceline.testing.clock import FakeClock
from paceline.testing.faults import Fault, random_kills

__all__ = ["FakeClock", "Fault", "random_kills"]
