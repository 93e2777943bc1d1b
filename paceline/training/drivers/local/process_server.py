"""The fork server that starts the processes of local runs and of experiments; it stays for the next ones."""

from __future__ import annotations

from paceline.fork_server import ForkServer

PRELOADED = (
    "torch",
    "paceline.training.drivers.local.worker",
    "paceline.training.drivers.local.server",
    "paceline.training.drivers.local.child",
)

_current: ForkServer | None = None


def process_server() -> ForkServer:
    """The one of this process, started if there is none; it imports PyTorch while the caller does something else."""
    global _current
    if _current is None or not _current.alive:
        _current = ForkServer(PRELOADED)
    return _current
