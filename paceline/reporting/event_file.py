"""TensorBoard's event files, written without TensorBoard: a record for each `Event`, framed as TFRecord.

A record is the length of its bytes, the bytes, and after each of the two a masked CRC-32C. The bytes are protobuf,
of which only what is needed is encoded; fields have the numbers of TensorFlow's event.proto and summary.proto, and of
plugin_data.proto of TensorBoard's hparams.
"""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from paceline.errors import OutputError

FILES = "events.out.tfevents.*"
LARGEST = 3.4028234e38
"""A scalar is kept as a float of four bytes."""
STARTED, SUCCEEDED, FAILED = 1, 1, 2
"""Of a session, in the words of SessionLog.SessionStatus and of the hparams' Status."""
HPARAMS = "hparams"


class EventFile:
    """A new file in `directory`. Every record is on its way to the disk when it has been added."""

    def __init__(self, directory: Path, clock: Callable[[], float] = time.time) -> None:
        self.directory, self.clock = directory, clock
        try:
            directory.mkdir(parents=True, exist_ok=True)
            # Files of a directory are read in the order of their names; the newest comes last.
            self._file = (directory / FILES.replace("*", f"{time.time_ns()}.paceline")).open("xb", buffering=0)
        except OSError as error:
            raise self._unwritable(error) from error
        self._add(text(3, "brain.Event:2"))

    def __enter__(self) -> EventFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        self._file.close()

    def begin_at(self, step: int) -> None:
        """Points of earlier files from this step on are void: what is done again is drawn once."""
        self._add(whole(2, step), message(7, whole(1, STARTED)))

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """A point of each curve; what is no number has none."""
        drawn = {tag: value for tag, value in values.items() if abs(value) <= LARGEST}
        points = (message(1, text(1, tag), single(2, value)) for tag, value in drawn.items())
        self._add(whole(2, step), message(5, *points))

    def hyper_parameters(self, values: Mapping[str, Any], group: str = "") -> None:
        """Shown beside what came of them; runs of one `group` are repetitions of each other."""
        entries = (message(1, text(1, name), message(2, _value(value))) for name, value in values.items())
        self._add_hparams("session_start_info", message(3, *entries, text(4, group), double(5, self.clock())))

    def ended(self, well: bool) -> None:
        how = whole(1, SUCCEEDED if well else FAILED)
        self._add_hparams("session_end_info", message(4, how, double(2, self.clock())))

    def _add_hparams(self, tag: str, content: bytes) -> None:
        plugin = message(1, text(1, HPARAMS), message(2, content))
        self._add(message(5, message(1, text(1, f"_{HPARAMS}_/{tag}"), message(9, plugin))))

    def _add(self, *fields: bytes) -> None:
        try:
            self._file.write(framed(double(1, self.clock()) + b"".join(fields)))
        except OSError as error:
            raise self._unwritable(error) from error

    def _unwritable(self, error: OSError) -> OutputError:
        return OutputError(f"`tensorboard={str(self.directory)!r}` cannot be written: {error.strerror or error}")


def framed(content: bytes) -> bytes:
    length = struct.pack("<Q", len(content))
    return length + struct.pack("<I", masked_crc(length)) + content + struct.pack("<I", masked_crc(content))


def masked_crc(content: bytes) -> int:
    """Rotated and shifted, since the checksum of something that holds its own checksum says little."""
    crc = crc32c(content)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def crc32c(content: bytes) -> int:
    """Castagnoli's, as in iSCSI; zlib's is another."""
    crc = 0xFFFFFFFF
    for byte in content:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def _remainder(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    return byte


_TABLE = tuple(_remainder(byte) for byte in range(256))


# Fields of a protobuf message: a key, which holds the field's number and how it is encoded, and a value.


def whole(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def double(field: int, value: float) -> bytes:
    return _varint(field << 3 | 1) + struct.pack("<d", value)


def single(field: int, value: float) -> bytes:
    return _varint(field << 3 | 5) + struct.pack("<f", value)


def text(field: int, value: str) -> bytes:
    return message(field, value.encode(errors="backslashreplace"))


def message(field: int, *parts: bytes) -> bytes:
    content = b"".join(parts)
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    """Seven bits a byte, the least first."""
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def _value(value: Any) -> bytes:
    """A google.protobuf.Value."""
    if isinstance(value, bool):
        return whole(4, value)
    if isinstance(value, int | float):
        return double(2, value)
    return text(3, value if isinstance(value, str) else json.dumps(value, sort_keys=True))
