"""Parses sizes, rates and times: a plain number in base units, or text such as `24 GB` and `10 Gb/s`."""

from __future__ import annotations

import re

from paceline.cluster.checks import LARGEST
from paceline.errors import InputError, nearest

_DECIMAL = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}
_SIZES = {f"{prefix}B": factor for prefix, factor in (_DECIMAL | _BINARY).items()}

UNITS: dict[str, dict[str, float]] = {
    "size": _SIZES,
    "rate": {
        **{f"{unit}/s": factor for unit, factor in _SIZES.items()},
        **{f"{prefix}{bit}/s": factor / 8 for prefix, factor in _DECIMAL.items() for bit in ("b", "bit")},
    },
    "time": {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9},
    "speed": {f"{p}{word}": f for p, f in _DECIMAL.items() for word in ("FLOP/s", "FLOPS")},
}
_MEANT = {
    "size": "bytes, or text such as '24 GB'",
    "rate": "bytes/s, or text such as '31.5 GB/s' or '10 Gb/s'",
    "time": "seconds, or text such as '50 us'",
    "speed": "FLOP/s, or text such as '19.5 TFLOP/s'",
}
_TEXT = re.compile(r"\s*([+-]?[0-9][0-9_]*(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)\s*(\S*)\s*")


def quantity(value: object, kind: str, where: str) -> float:
    """The number in base units, above 0 unless it is a time; `where` names it in errors."""
    found = _TEXT.fullmatch(value) if isinstance(value, str) else None
    if found is not None:
        unit, units = found[2], UNITS[kind]
        if unit and unit not in units:
            raise InputError(f"{where}={value!r:.60}: no unit {unit!r}: {nearest(unit, units)}")
        amount: float = float(found[1]) * units.get(unit, 1.0)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        amount = value
    else:
        raise InputError(f"{where}={value!r:.60} should be a number of {_MEANT[kind]}")
    if not 0 <= amount < LARGEST or (amount == 0 and kind != "time"):
        wanted = "of at least 0" if kind == "time" else "above 0"
        raise InputError(f"{where}={value!r:.60} should be a finite number {wanted}")
    return float(amount)
