"""Decoded images kept on disk, so that an image is decoded once: an SQLite file per image folder, with a size limit.

SQLite makes it safe: several runs may use it at once, a killed process leaves no half image, and a full disk stops
adding. An image is found by its path, and counts only while size and times of its file are those it was decoded from.
When the limit is reached nothing is added or removed: epochs read all images in turn, so no other choice is better.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from paceline.data.cache import disk_error, ensure_folder, fingerprint

_PAGE_BYTES = 1 << 16
_JOURNAL_PAGES = 64
"""New images go into SQLite's journal, and from there into the file when it has this many pages."""
_WAIT_S = 1.0
_FORMAT = 1
_TABLE = """CREATE TABLE IF NOT EXISTS picture (
    path BLOB PRIMARY KEY, stamp TEXT, width INTEGER, height INTEGER, scale REAL, rows INTEGER, checksum INTEGER,
    pixels BLOB)"""


@dataclass(frozen=True, eq=False)
class DecodedImage:
    """A decoded image: bytes [rows, columns, 3], `scale` times the size of the image in the file."""

    pixels: npt.NDArray[Any]
    width: int
    height: int
    scale: float


class DecodedCache:
    """One process's access to the file. After an error it finds and adds nothing, and images are decoded as before."""

    def __init__(self, file: str, limit_bytes: int) -> None:
        self._file = file
        self._full = False
        self._database: sqlite3.Connection | None = None
        with contextlib.suppress(sqlite3.Error):
            self._database = _connect(Path(file), limit_bytes)

    def get(self, path: str, decode: Callable[[str], DecodedImage]) -> DecodedImage:
        """The image at `path`, decoded with `decode` unless it is in the cache."""
        if self._database is None:
            return decode(path)
        stamp = _stamp(path)
        found = self._answer(lambda database: _find(database, path, stamp))
        if found is not None:
            return found
        made = decode(path)
        # A file that was replaced in the meantime is decoded again next time.
        if not self._full and _stamp(path) == stamp:
            self._answer(lambda database: _add(database, path, stamp, made))
        return made

    def _answer(self, ask: Callable[[sqlite3.Connection], DecodedImage | None]) -> DecodedImage | None:
        if self._database is None:
            return None
        try:
            return ask(self._database)
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code == sqlite3.SQLITE_FULL:
                self._full = True
            elif code not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                self.close()
                if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
                    remove(Path(self._file))
            return None

    def close(self) -> None:
        if self._database is not None:
            with contextlib.suppress(sqlite3.Error):
                self._database.close()
            self._database = None


def create(file: Path, limit_bytes: int) -> None:
    """Makes the file, or makes it anew if it is damaged or larger than the limit."""
    ensure_folder(file.parent)
    if file.exists() and file.stat().st_size > limit_bytes:
        remove(file)
    try:
        try:
            _connect(file, limit_bytes, "rwc").close()
        except sqlite3.DatabaseError as error:
            if getattr(error, "sqlite_errorcode", 0) not in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
                raise
            remove(file)
            _connect(file, limit_bytes, "rwc").close()
    except sqlite3.Error as error:
        raise disk_error(file, OSError(0, str(error))) from error


def remove(file: Path) -> None:
    """Processes that have it open still see their own."""
    for end in ("-wal", "-shm", ""):
        with contextlib.suppress(OSError):
            file.with_name(file.name + end).unlink()


def _connect(file: Path, limit_bytes: int, mode: str = "rw") -> sqlite3.Connection:
    database = sqlite3.connect(
        f"{file.absolute().as_uri()}?mode={mode}", timeout=_WAIT_S, isolation_level=None, uri=True
    )
    try:
        if mode == "rwc":
            database.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
            database.execute("PRAGMA journal_mode = WAL")
            if database.execute("PRAGMA user_version").fetchone()[0] != _FORMAT:
                database.execute("DROP TABLE IF EXISTS picture")
                database.execute(f"PRAGMA user_version = {_FORMAT}")
            database.execute(_TABLE)
        pages = limit_bytes // _PAGE_BYTES
        journal = min(_JOURNAL_PAGES, max(1, pages // 8))
        database.execute("PRAGMA synchronous = NORMAL")
        database.execute(f"PRAGMA wal_autocheckpoint = {journal}")
        database.execute(f"PRAGMA journal_size_limit = {journal * _PAGE_BYTES}")
        database.execute(f"PRAGMA max_page_count = {max(1, pages - 2 * journal)}")
    except BaseException:
        database.close()
        raise
    return database


def _stamp(path: str) -> str:
    return " ".join(map(str, fingerprint(Path(path))))


def _find(database: sqlite3.Connection, path: str, stamp: str) -> DecodedImage | None:
    columns = "width, height, scale, rows, checksum, pixels"
    row = database.execute(
        f"SELECT {columns} FROM picture WHERE path = ? AND stamp = ?", (os.fsencode(path), stamp)
    ).fetchone()
    if row is None:
        return None
    width, height, scale, rows, checksum, stored = row
    pixels = np.frombuffer(stored, dtype=np.uint8)
    if _checksum(pixels) != checksum:
        return None
    return DecodedImage(pixels.reshape(rows, -1, 3), width, height, scale)


def _add(database: sqlite3.Connection, path: str, stamp: str, made: DecodedImage) -> None:
    pixels = np.ascontiguousarray(made.pixels)
    row = (os.fsencode(path), stamp, made.width, made.height, made.scale, len(pixels), _checksum(pixels), pixels)
    database.execute("INSERT OR REPLACE INTO picture VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)


def _checksum(pixels: npt.NDArray[Any]) -> int:
    """Finds pages that a crash of the machine lost, at the speed of memory."""
    flat = pixels.reshape(-1)
    whole = len(flat) // 8 * 8
    return int(flat[:whole].view(np.int64).sum()) ^ int(flat[whole:].sum())
