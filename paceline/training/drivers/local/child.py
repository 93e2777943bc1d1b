"""Entry point of a server or worker process: shared memory, doorbells, user modules, and error reporting."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch

from paceline.errors import Diverged, InputError, PacelineError, reason
from paceline.fork_server import Forked
from paceline.held_objects import load_held
from paceline.step.denormals import flush_denormals
from paceline.training.drivers.local.settings import ProcessSettings
from paceline.training.drivers.local.shared_memory import SharedMemory

DIVERGED = 3
"""The exit code of a process that found the run to diverge; any other failure has that of its error."""


class Bells(NamedTuple):
    """Descriptors by which processes wake each other."""

    launcher: int
    server: int
    workers: tuple[int, ...]


def run(text: str, descriptors: list[int]) -> None:
    """Runs the server or a worker until the launcher ends it. The first descriptor is the shared memory."""
    settings = ProcessSettings.of(text)
    memory = SharedMemory(settings.sizes, descriptors[0])
    bells = Bells(descriptors[1], descriptors[2], tuple(descriptors[3:]))
    with _reporting(memory, settings.number):
        torch.set_num_threads(settings.threads)
        flush_denormals()
        sys.path.extend(place for place in settings.search_path if place not in sys.path)
        if settings.objects:
            load_held(Path(settings.objects))
        if settings.is_server:
            from paceline.training.drivers.local.server import Server

            process: Server | Worker = Server(settings, memory, bells)
        else:
            from paceline.training.drivers.local.worker import Worker

            process = Worker(settings, memory, bells)
        gc.collect()
        gc.freeze()  # what is there now stays; looking through it again and again would be for nothing
        process.work()


def failure(message: str, process: Forked) -> PacelineError:
    """The error that a process ended with, to be raised by the launcher."""
    code = process.ended.code if process.ended is not None else 1
    if code == DIVERGED:
        return Diverged(message)
    return InputError(message) if code == InputError.exit_code else PacelineError(message)


@contextlib.contextmanager
def _reporting(memory: SharedMemory, who: int) -> Iterator[None]:
    """Turns an error into one line for the launcher and an exit code."""
    try:
        yield
    except PacelineError as error:
        memory.report(who, str(error))
        os._exit(DIVERGED if isinstance(error, Diverged) else error.exit_code)
    except MemoryError:
        memory.report(who, "out of memory")
        os._exit(1)
    except Exception as error:
        memory.report(who, reason(error))
        os._exit(1)
