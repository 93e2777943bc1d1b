"""The start of a process of a divided network, its loop over the launcher's messages, and how it reports errors."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import torch

from paceline.errors import PacelineError, reason
from paceline.held_objects import load_held
from paceline.step.denormals import flush_denormals
from paceline.training.drivers.model_parallel.messages import Channel, Failed
from paceline.training.drivers.model_parallel.process_settings import DividedSettings


def run(text: str, descriptors: list[int]) -> None:
    """Serves the launcher until it is gone."""
    settings = DividedSettings.of(text)
    channel = Channel(socket.socket(fileno=descriptors[0]))
    try:
        torch.set_num_threads(settings.threads)
        flush_denormals()
        sys.path.extend(place for place in settings.search_path if place not in sys.path)
        if settings.objects:
            load_held(Path(settings.objects))
        from paceline.training.drivers.model_parallel.stage_process import StageProcess

        process = StageProcess(settings)
        channel.send(process.ready())
        while True:
            channel.send(process.answer(channel.receive()))
    except EOFError:
        os._exit(0)
    except PacelineError as error:
        _fail(channel, Failed(str(error), error.exit_code))
    except MemoryError:
        _fail(channel, Failed("out of memory", 1))
    except Exception as error:
        _fail(channel, Failed(reason(error), 1))


def _fail(channel: Channel, failed: Failed) -> None:
    try:
        channel.send(failed)
    finally:
        os._exit(failed.exit_code)
