"""Reads event files for tests, without anything of what writes them."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


def checksum(content: bytes) -> int:
    """Bit by bit, by the polynomial's definition, then masked."""
    crc = 0xFFFFFFFF
    for byte in content:
        for bit in range(8):
            low = (crc ^ (byte >> bit)) & 1
            crc = (crc >> 1) ^ (low * 0x82F63B78)
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17 & 0xFFFFFFFF)) + 0xA282EAD8) % 2**32


def records_of(content: bytes) -> list[bytes]:
    found = []
    while content:
        header, rest = content[:8], content[8:]
        (length,) = struct.unpack("<Q", header)
        assert rest[:4] == struct.pack("<I", checksum(header))
        body = rest[4 : 4 + length]
        assert len(body) == length and rest[4 + length : 8 + length] == struct.pack("<I", checksum(body))
        found.append(body)
        content = rest[8 + length :]
    return found


def fields_of(content: bytes) -> dict[int, list[Any]]:
    """The values of each field of a message: integers, floats, or bytes that may be a message themselves."""

    def varint() -> int:
        nonlocal place
        value = shift = 0
        while True:
            byte = content[place]
            place += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    place, found = 0, dict[int, list[Any]]()
    while place < len(content):
        key = varint()
        if key % 8 == 0:
            value: Any = varint()
        elif key % 8 == 1:
            (value,) = struct.unpack_from("<d", content, place)
            place += 8
        elif key % 8 == 5:
            (value,) = struct.unpack_from("<f", content, place)
            place += 4
        else:
            assert key % 8 == 2
            length = varint()
            value = content[place : place + length]
            assert len(value) == length
            place += length
        found.setdefault(key // 8, []).append(value)
    return found


@dataclass
class Event:
    wall_time: float
    step: int = 0
    file_version: str = ""
    session: int = 0
    scalars: dict[str, float] = field(default_factory=dict)
    hyper_parameters: dict[str, Any] = field(default_factory=dict)
    group: str = ""
    ended: int = 0


def read_events(path: Path) -> list[Event]:
    return [_event(fields_of(body)) for body in records_of(path.read_bytes())]


def _event(fields: dict[int, list[Any]]) -> Event:
    made = Event(fields[1][0], fields.get(2, [0])[0], fields.get(3, [b""])[0].decode())
    if 7 in fields:
        made.session = fields_of(fields[7][0])[1][0]
    for value in fields_of(fields[5][0])[1] if 5 in fields else []:
        parts = fields_of(value)
        tag = parts[1][0].decode()
        if 2 in parts:
            made.scalars[tag] = parts[2][0]
        else:
            _add_hparams(made, tag, fields_of(fields_of(parts[9][0])[1][0]))
    return made


def _add_hparams(made: Event, tag: str, plugin: dict[int, list[Any]]) -> None:
    assert plugin[1] == [b"hparams"]
    content = fields_of(plugin[2][0])
    if tag == "_hparams_/session_end_info":
        made.ended = fields_of(content[4][0])[1][0]
        return
    assert tag == "_hparams_/session_start_info"
    start = fields_of(content[3][0])
    made.group = start.get(4, [b""])[0].decode()
    for entry in start.get(1, []):
        pair = fields_of(entry)
        ((kind, (value,)),) = fields_of(pair[2][0]).items()
        made.hyper_parameters[pair[1][0].decode()] = {2: float, 3: bytes.decode, 4: bool}[kind](value)
