"""How many samples a source that generates them has, and its number, as in `adding:100:20000`."""

from __future__ import annotations

import re

from paceline.data.source import Source
from paceline.errors import DataError
from paceline.free_memory import free_memory_bytes, memory_size

TEST_SHARE = 4
"""Training samples for each one that is generated for testing."""


def whole_argument(source: Source, what: str, least: int, most: int) -> int:
    """The argument of a source, where it is a number."""
    text = source.needed_argument(what)
    if not re.fullmatch(r"\d+", text) or not least <= int(text) <= most:
        raise DataError(f"data {source.text!r}: the {what} {text} must be a whole number from {least} to {most:,}")
    return int(text)


def sample_counts(source: Source, default: int, sample_bytes: int) -> tuple[int, int]:
    """For training and testing, if they fit into memory."""
    training = source.count or default
    testing = max(1, training // TEST_SHARE)
    size_bytes = (training + testing) * sample_bytes
    if size_bytes > (free := free_memory_bytes()):
        raise DataError(
            f"data {source.text!r} takes {memory_size(size_bytes)} of memory, {memory_size(free)} are free: "
            "use fewer or smaller samples"
        )
    return training, testing
