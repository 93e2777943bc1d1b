"""The process that decodes: `python -m paceline.data.decode_worker SETTINGS`, started by `image_reader`.

It reads tasks from standard input, writes pixels into the ring and one answer a task to standard output.
It ends when its input closes, so it cannot outlive the process that started it, however that ends.
"""

from __future__ import annotations

import json
import os
import struct
import sys
from dataclasses import dataclass

from paceline.data.decode import Decoder
from paceline.data.decoded_cache import DecodedCache
from paceline.data.ring import PathTable, Ring, RingViews

TASK = struct.Struct("<III")
"""Slot, first position, position after the last."""
ANSWER = struct.Struct("<IIII")
"""The task, and the length of the error message that follows it (0: all is well)."""


@dataclass(frozen=True)
class Settings:
    """What a decoder is started with, as JSON on its command line."""

    ring_descriptor: int
    paths_descriptor: int
    paths: int
    slots: int
    batch: int
    size: int
    seed: int
    training: bool
    fast: bool
    cache: str
    """The file that keeps decoded images; empty: none."""
    cache_bytes: int


def main(settings: Settings) -> None:
    views = Ring(settings.slots, settings.batch, settings.size).map(settings.ring_descriptor)
    paths = PathTable.map(settings.paths_descriptor, settings.paths)
    cache = DecodedCache(settings.cache, settings.cache_bytes) if settings.cache else None
    decoder = Decoder(settings.size, settings.seed, settings.training, settings.fast, cache)
    with os.fdopen(0, "rb") as tasks:
        while len(task := tasks.read(TASK.size)) == TASK.size:
            slot, start, stop = TASK.unpack(task)
            message = _decode(decoder, views, paths, slot, start, stop).encode()
            try:
                os.write(1, ANSWER.pack(slot, start, stop, len(message)) + message)
            except BrokenPipeError:
                return


def _decode(decoder: Decoder, views: RingViews, paths: PathTable, slot: int, start: int, stop: int) -> str:
    """Returns what went wrong, or nothing."""
    epoch = int(views.epochs[slot])
    for position in range(start, stop):
        index = int(views.indices[slot, position])
        path = paths[index]
        try:
            decoder.decode(path, epoch, index, views.pixels[slot, position])
        # PIL raises whatever its format plugins do; the trainer reports all of it as one kind of error.
        except Exception as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            return f"image {path} cannot be read: {reason}; replace or remove it"[:2000]
    return ""


if __name__ == "__main__":
    main(Settings(**json.loads(sys.argv[1])))
