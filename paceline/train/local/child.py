"""A process of the run, as the launcher has it and as it finds itself: it ends with its launcher, whatever happens."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import torch

from paceline.child_environment import child_environment
from paceline.errors import Diverged, InputError, PacelineError
from paceline.step.reason import reason
from paceline.train.local.memory import Memory
from paceline.train.local.settings import Settings

_START = Path(__file__).with_name("start.py")
DIVERGED = 3
"""The exit code of a child that found the run to diverge; any other failure has that of its error."""
DEATHS = 5
"""So many in a row without a task or an update in between are not bad luck."""


class Child:
    """The launcher's side."""

    def __init__(self, module: str, settings: Settings) -> None:
        self.number, self.life = settings.number, settings.life
        # -P: a file called numpy.py in the current folder must not be imported.
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-W", "ignore", str(_START), str(settings.parent), module, settings.text()],
            stdin=subprocess.DEVNULL,
            stdout=2,  # what a user's module prints must not get between the lines of a record
            pass_fds=settings.descriptors,
            env=child_environment(OMP_NUM_THREADS=str(settings.threads)),
            # A process group of its own: Ctrl-C is for the launcher, which then ends us.
            process_group=0,
        )

    @property
    def process_id(self) -> int:
        return self.process.pid

    def ended(self) -> bool:
        return self.process.poll() is not None

    def how_it_ended(self) -> str:
        code = self.process.returncode
        if code is None or code >= 0:
            return f"ended with exit code {code}"
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        return f"was ended by {name}" + (", perhaps for want of memory" if name == "SIGKILL" else "")

    def kill(self) -> None:
        """Ends it at once. All that matters is in shared memory, and whole at any moment."""
        self.process.kill()
        self.process.wait()


def failure(message: str, code: int | None) -> PacelineError:
    """What a child ended with, to be raised by the launcher."""
    if code == DIVERGED:
        return Diverged(message)
    return InputError(message) if code == InputError.exit_code else PacelineError(message)


@contextlib.contextmanager
def as_child(settings: Settings) -> Iterator[Memory]:
    """The child's side: the shared memory, and the user's modules found where the launcher found them."""
    memory = Memory(settings.sizes, settings.memory)
    with _telling(memory, settings.number):
        torch.set_num_threads(settings.threads)
        sys.path.extend(place for place in settings.search_path if place not in sys.path)
        yield memory


@contextlib.contextmanager
def _telling(memory: Memory, who: int) -> Iterator[None]:
    """An error becomes a line for the launcher and an exit code."""
    try:
        yield
    except PacelineError as error:
        memory.tell(who, str(error))
        os._exit(DIVERGED if isinstance(error, Diverged) else error.exit_code)
    except MemoryError:
        memory.tell(who, "out of memory")
        os._exit(1)
    except Exception as error:
        memory.tell(who, reason(error))
        os._exit(1)
