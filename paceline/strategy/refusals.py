"""What happens to a payload that is not finite: the run stops, or goes on without it for as long as others come."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from paceline.errors import StrategyError

if TYPE_CHECKING:
    from torch import Tensor

POLICIES = ("skip", "stop")
TOO_OFTEN = 100
"""So many in a row mean that nothing is learnt any more."""


def check_policy(policy: str) -> None:
    if policy not in POLICIES:
        raise StrategyError(f"on-bad-gradient {policy!r} should be {' or '.join(POLICIES)}")


def is_finite(payload: Tensor) -> bool:
    """Whether every number of a payload is one; a sum tells it, unless it overflows by itself."""
    return math.isfinite(payload.sum().item()) or bool(payload.isfinite().all())
