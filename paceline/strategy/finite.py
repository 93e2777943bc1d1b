"""Whether a payload is finite; one that is not must never reach the parameters."""

from __future__ import annotations

import math

from torch import Tensor


def is_finite(payload: Tensor) -> bool:
    """One pass: a sum shows an infinity or a NaN, unless it overflows by itself."""
    return math.isfinite(payload.sum().item()) or bool(payload.isfinite().all())
