"""How often a run is validated: every N epochs, updates or seconds."""

from __future__ import annotations

import re
from dataclasses import dataclass

from paceline.errors import StrategyError

UNITS = {"epoch": "epochs", "epochs": "epochs", "update": "updates", "updates": "updates", "s": "s"}


@dataclass(frozen=True)
class ValidationInterval:
    amount: float
    unit: str
    """epochs, updates or s (seconds on the driver's clock)."""


def parse_interval(text: str) -> ValidationInterval:
    """`1epoch`, `500updates` or `30s`."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*", text)
    unit = UNITS.get(found[2]) if found else None
    amount = float(found[1]) if found else 0.0
    if unit is None or amount <= 0 or (unit != "s" and amount != int(amount)):
        raise StrategyError(f"`validate_every={text!r}` should be like 1epoch, 500updates or 30s")
    return ValidationInterval(amount, unit)
