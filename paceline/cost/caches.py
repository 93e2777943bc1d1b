"""What the operations of a network find in the caches of a CPU, between those that were timed with nothing in them and
those that were timed with everything.

An operation finds its code if a similar one ran shortly before, and its data if a whole iteration hardly writes more
than the caches hold. How soon something leaves them is one number, fitted to measured networks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from paceline.cost.operation import Operation


@dataclass(frozen=True)
class Costed:
    operation: Operation
    seconds: float
    deviation: float
    """Standard deviation of the logarithm of `seconds`."""
    cached_s: float = 0.0
    """Seconds where the caches of a CPU hold everything; 0 if unknown."""
    code_s: float = 0.0
    """How much longer it takes where they have lost its code."""


WITHOUT_CODE = 6.0
"""How much longer the interpreter takes for the same calls if their code has left the caches, as a multiple."""


def displaced(written_bytes: float, cache_bytes: float) -> float:
    """The share of something that is in the caches no longer after so much was written since it was used."""
    return written_bytes / (written_bytes + cache_bytes) if cache_bytes else 1.0


def written_bytes(timed: Sequence[Costed]) -> int:
    return sum(each.operation.written_bytes for each in timed)


def displaced_by_iteration(timed: Sequence[Costed], cache_bytes: float) -> float:
    return displaced(written_bytes(timed), cache_bytes)


def slowed_without_code(lost: float, cache_bytes: float) -> float:
    """How many times as long calls take if the caches have lost this share of their code; where nothing is known about
    the caches, calls were measured as they are."""
    return 1.0 + WITHOUT_CODE * lost if cache_bytes else 1.0


def in_caches(timed: Sequence[Costed], cache_bytes: float) -> list[Costed]:
    """The operations of an iteration, in order, which were timed each alone."""
    if not cache_bytes:
        return list(timed)
    data = displaced_by_iteration(timed, cache_bytes)
    found = []
    for each, since in zip(timed, _written_since_alike(timed), strict=True):
        code_s = displaced(since, cache_bytes) * each.code_s
        data_s = data * (each.seconds - each.cached_s - each.code_s)
        found.append(replace(each, seconds=each.cached_s + code_s + data_s) if each.cached_s else each)
    return found


def _written_since_alike(timed: Sequence[Costed]) -> list[float]:
    """What was written between the last operation of the same family, perhaps in the iteration before, and each."""
    last: dict[str, float] = {}
    since = [0.0] * len(timed)
    written = 0.0
    for _ in range(2):
        for number, each in enumerate(timed):
            since[number] = written - last.get(each.operation.family, written)
            written += each.operation.written_bytes
            last[each.operation.family] = written
    return since
