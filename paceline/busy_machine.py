"""Notices that other work keeps the machine busy, so that times are longer than they would be on an idle one.

The load average costs nothing to read. Where it suggests other work, the CPU time that others use, or that the
hypervisor gives to other machines (steal), is read from /proc/stat while this process sleeps for a moment.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

LOAD_PER_CORE = 0.5
"""Below this load average nothing else is looked at; a command that has just ended leaves some load, too."""
BUSY_SHARE, STEAL_SHARE = 0.25, 0.05
SAMPLE_S = 0.05
_STAT = Path("/proc/stat")
_IDLE, _WAITING, _STOLEN = 3, 4, 7


def busy_now() -> str:
    """One line that says how busy the machine is with other work; empty if it is not."""
    try:
        load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
        if load < LOAD_PER_CORE * cores:
            return ""
        before = _ticks()
        time.sleep(SAMPLE_S)
        after = _ticks()
    except (OSError, ValueError, IndexError):
        return ""
    return _said(load, cores, [b - a for a, b in zip(before, after, strict=True)])


def _ticks() -> list[int]:
    """CPU time of the whole machine so far by kind: user, nice, system, idle, waiting, interrupts, stolen."""
    return [int(word) for word in _STAT.read_text().splitlines()[0].split()[1:9]]


def _said(load: float, cores: int, ticks: list[int]) -> str:
    total = sum(ticks)
    if total <= 0:
        return ""
    stolen = ticks[_STOLEN] / total
    used = 1 - (ticks[_IDLE] + ticks[_WAITING]) / total - stolen
    if used < BUSY_SHARE and stolen < STEAL_SHARE:
        return ""
    words = [f"load {load:.1f} on {cores} cores", f"{100 * used:.0f} % of the CPU in use by others"]
    words += [f"{100 * stolen:.0f} % stolen by other virtual machines"] if stolen >= STEAL_SHARE else []
    return f"this machine is busy ({', '.join(words)}): times are longer than on an idle one"
