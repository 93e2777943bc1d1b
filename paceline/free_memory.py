"""How much memory may still be taken on this machine, without PyTorch; sizes are compared with it beforehand."""

from __future__ import annotations

from pathlib import Path

UNKNOWN = 4 << 30
"""Assumed where the system does not say."""
_CONTROL_GROUPS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)


def free_memory_bytes() -> int:
    """The machine's available memory, or what its control group leaves of it."""
    free = _available()
    for limit, used in _CONTROL_GROUPS:
        try:
            free = min(free, int(Path(limit).read_text()) - int(Path(used).read_text()))
        except (OSError, ValueError):  # there is no such file, or its limit is `max`
            continue
    return max(0, free)


def _available() -> int:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return UNKNOWN


def memory_size(size_bytes: int) -> str:
    """For messages; whole numbers of any length."""
    return f"{size_bytes / 1e9:,.1f} GB" if size_bytes < 10**15 else "over 1,000,000 GB"
