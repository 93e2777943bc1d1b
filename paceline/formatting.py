"""Numbers and units as text, in one style: 12.3 %, 4.5 ms, 1,200 samples/s, 3.2 GB; lists with an "and"."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from statistics import median

UNKNOWN = "–"


def number(value: float) -> str:
    """Four significant digits, thousands separated."""
    if not math.isfinite(value):
        return UNKNOWN
    if isinstance(value, int) and abs(value) < 1e15:
        return f"{value:,}"
    if value == 0:
        return "0"
    if 1e-4 <= abs(value) < 1e15:
        return f"{value:,.{max(0, 3 - math.floor(math.log10(abs(value))))}f}"
    return f"{value:.4g}"


def percent(share: float, digits: int = 1) -> str:
    return f"{100 * share:.{digits}f} %" if math.isfinite(share) else UNKNOWN


def signed_percent(share: float, digits: int = 1) -> str:
    return f"{100 * share:+.{digits}f} %" if math.isfinite(share) else UNKNOWN


def duration(seconds: float) -> str:
    """About three digits, in h, min, s, ms or µs."""
    if not math.isfinite(seconds):
        return UNKNOWN
    size = abs(seconds)
    for least, factor, unit in ((7200, 3600, "h"), (120, 60, "min"), (1, 1, "s")):
        if size >= least:
            return f"{seconds / factor:,.{1 if size / factor < 100 else 0}f} {unit}"
    if size == 0:
        return "0 s"
    return f"{_three(1e3 * seconds)} ms" if size >= 1e-3 else f"{_three(1e6 * seconds)} µs"


def rate(per_second: float, of: str = "samples") -> str:
    said = number(round(per_second) if per_second >= 100 else per_second)
    return f"{said.rstrip('0').rstrip('.') if '.' in said else said} {of}/s"


def _three(value: float) -> str:
    return f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"


def times(ratio: float) -> str:
    """2.3 times, 41 times."""
    if not math.isfinite(ratio):
        return f"{UNKNOWN} times"
    return f"{ratio:.{0 if ratio >= 20 else 1 if ratio >= 1.95 else 2}f} times"


def count(many: int, one: str, several: str | None = None) -> str:
    """1 run, 2 runs."""
    return f"{many:,} {one if many == 1 else several or one + 's'}"


def listed(words: Iterable[object], most: int = 8) -> str:
    """`a, b and c`; the first ones of many."""
    said = [str(word) for word in words]
    if len(said) > most:
        return ", ".join(said[:most]) + f" and {len(said) - most} more"
    return " and ".join(([", ".join(said[:-1])] if said[1:] else []) + said[-1:])


def median_of(values: Iterable[float]) -> float:
    """The median of the finite values; NaN if there are none."""
    finite = [value for value in values if math.isfinite(value)]
    return median(finite) if finite else math.nan


def natural(text: str) -> tuple[int, float, str]:
    """A sort key: numbers by size, before text."""
    try:
        value = float(text)
    except ValueError:
        return 2, 0.0, text
    return (1, value, text) if math.isfinite(value) else (2, 0.0, text)


def as_number(text: str) -> str | int | float | None:
    """The number that a text states, if it does."""
    for kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            continue
        return value if math.isfinite(value) else text
    return text


def in_order(values: Iterable[str]) -> list[str]:
    """The distinct values, sorted."""
    return sorted(set(values), key=natural)


def glued(text: str) -> str:
    """Numbers are not separated from their units at the end of a line."""
    units = r"%|ms\b|µs\b|s\b|min\b|h\b|GB\b|samples/s|steps/s|updates/s|times|workers?\b"
    return re.sub(rf"(?<=\d) (?={units})", "\u00a0", text)


def largest(values: Sequence[float]) -> float:
    finite = [value for value in values if math.isfinite(value)]
    return max(finite, default=math.nan)
