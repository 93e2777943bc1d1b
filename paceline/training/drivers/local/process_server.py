"""The fork server that starts the processes of local runs and experiments; it is kept for later runs."""

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
    """The fork server of this process, started on first use; it imports PyTorch in the background."""
    global _current
    if _current is None or not _current.alive:
        _current = ForkServer(PRELOADED)
    return _current
