"""How a process of a run begins: `python start.py PARENT MODULE SETTINGS`.

Before anything slow is imported the kernel is asked to end it with its launcher, even if that ends by SIGKILL.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import runpy
import signal
import sys

_PR_SET_PDEATHSIG = 1


def end_with(parent: int) -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before we could ask
        os._exit(1)


if __name__ == "__main__":
    _, launcher, module, settings = sys.argv
    end_with(int(launcher))
    sys.argv = [module, settings]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
