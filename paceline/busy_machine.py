"""Notices a machine that other work keeps busy, or whose clock drifts: times are then longer than on an idle one.

The load average costs nothing to read. Where it suggests other work, the CPU time that others use, or that the
hypervisor gives to other machines (steal), is read from /proc/stat while this process sleeps for a moment. Over a
whole run or measurement, a `MachineWatch` adds the steal meanwhile and the drift of the processor's clock: how much
longer the same short loop takes at the end than at the beginning.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

LOAD_PER_CORE = 0.5
"""Below this load average nothing else is looked at; a command that has just ended leaves some load, too."""
BUSY_SHARE, STEAL_SHARE, DRIFT_SHARE = 0.25, 0.05, 0.2
SAMPLE_S = 0.05
LOOPS, TURNS = 12, 10_000
"""The processor's speed is the fastest of `LOOPS` loops of `TURNS` turns: interruptions slow down the others."""
_PROCESSES = Path("/proc")
_STAT = _PROCESSES / "stat"
_IDLE, _WAITING, _STOLEN = 3, 4, 7


class MachineWatch:
    """Watches the machine from its making until `said`; `busy` is what `busy_now` said before, if it was asked."""

    def __init__(self, busy: str | None = None) -> None:
        self.busy = busy_now() if busy is None else busy
        self._before = _state()

    def said(self) -> str:
        """One line about what made times longer; empty if nothing did."""
        return "; ".join(words for words in (self.busy, _meanwhile(self._before, _state())) if words)


@dataclass(frozen=True)
class _State:
    ticks: list[int]
    loop_s: float


def _state() -> _State:
    try:
        ticks = _ticks()
    except (OSError, ValueError, IndexError):
        ticks = [0] * 8
    return _State(ticks, min(_loop_s() for _ in range(LOOPS)))


def _loop_s() -> float:
    start_s = time.perf_counter()
    for _ in range(TURNS):
        pass
    return time.perf_counter() - start_s


def _meanwhile(before: _State, after: _State) -> str:
    words = []
    passed = [b - a for a, b in zip(before.ticks, after.ticks, strict=True)]
    if (stolen := passed[_STOLEN] / max(1, sum(passed))) >= STEAL_SHARE:
        words.append(f"other virtual machines took {100 * stolen:.0f} % of the CPU meanwhile")
    if (slower := after.loop_s / before.loop_s - 1) >= DRIFT_SHARE:
        words.append(f"the processor was {100 * slower:.0f} % slower at the end than at the beginning")
    return " and ".join(words)


def busy_now() -> str:
    """One line that says how busy the machine is with other work; empty if it is not."""
    try:
        load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
        if load < LOAD_PER_CORE * cores:
            return ""
        before, own_before = _ticks(), _own_ticks()
        time.sleep(SAMPLE_S)
        after, own_after = _ticks(), _own_ticks()
    except (OSError, ValueError, IndexError):
        return ""
    return _said(load, cores, [b - a for a, b in zip(before, after, strict=True)], own_after - own_before)


def _ticks() -> list[int]:
    """CPU time of the whole machine so far by kind: user, nice, system, idle, waiting, interrupts, stolen."""
    return [int(word) for word in _STAT.read_text().splitlines()[0].split()[1:9]]


def _own_ticks() -> int:
    """CPU time so far of this process and of those it started, which are not other work."""
    parents: dict[int, int] = {}
    used: dict[int, int] = {}
    for place in _PROCESSES.glob("[0-9]*/stat"):
        try:
            words = place.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        process = int(place.parent.name)
        parents[process], used[process] = int(words[1]), int(words[11]) + int(words[12])
    own = {os.getpid()}
    while more := {process for process, parent in parents.items() if parent in own} - own:
        own |= more
    return sum(used.get(process, 0) for process in own)


def _said(load: float, cores: int, ticks: list[int], own: int) -> str:
    total = sum(ticks)
    if total <= 0:
        return ""
    stolen = ticks[_STOLEN] / total
    used = 1 - (ticks[_IDLE] + ticks[_WAITING] + own) / total - stolen
    if used < BUSY_SHARE and stolen < STEAL_SHARE:
        return ""
    words = [f"load {load:.1f} on {cores} cores", f"{100 * used:.0f} % of the CPU in use by others"]
    words += [f"{100 * stolen:.0f} % stolen by other virtual machines"] if stolen >= STEAL_SHARE else []
    return f"this machine is busy ({', '.join(words)}): times are longer than on an idle one"
