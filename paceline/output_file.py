"""Writes a file: whole or not at all, and only regular files are replaced.

A device, a pipe or a descriptor of this process (/dev/stdout) is written to; of a symbolic link the target is written.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from paceline.errors import OutputError

_DESCRIPTOR = re.compile(r"/proc/(?:self|(\d+))(?:/task/\d+)?/fd/(\d+)")
_MOST_LINKS = 40


def write_atomically(path: Path, text: str) -> None:
    """Either the whole text is at `path` afterwards, or what was there before."""
    try:
        descriptor = _own_descriptor(path)
        if descriptor is not None:
            _write_to(os.dup(descriptor), text)
        elif is_stream(path):
            _write_to(os.open(path, os.O_WRONLY), text)
        else:
            _replace(Path(os.path.realpath(path)), text)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from error
    except ValueError as error:  # a name that no file can have
        raise OutputError(f"cannot write {str(path)!r}: {error}") from error


def is_stream(path: Path) -> bool:
    """Whether something other than a regular file or a directory is there, such as a device or a named pipe."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def _own_descriptor(path: Path) -> int | None:
    """The open file of this process that `path` stands for, as /dev/stdout or /dev/fd/3 do."""
    place = os.fspath(path)
    for _ in range(_MOST_LINKS):
        folder = os.path.realpath(os.path.dirname(place) or ".")  # noqa: PTH120
        place = os.path.join(folder, os.path.basename(place))  # noqa: PTH118, PTH119
        found = _DESCRIPTOR.fullmatch(place)
        if found and found[1] in (None, str(os.getpid())):
            return int(found[2])
        if not os.path.islink(place):  # noqa: PTH114
            return None
        place = os.path.join(folder, os.readlink(place))  # noqa: PTH115, PTH118
    return None


def _write_to(descriptor: int, text: str) -> None:
    sys.stdout.flush()  # what was printed before comes first, where both go to the same place
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(text)


def _replace(path: Path, text: str) -> None:
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        # A file name may hold bytes that are not text; a page that shows them escaped is better than none.
        file.write(text.encode("utf-8", "backslashreplace"))


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write to, which replaces `path` in one move when the block ends without an exception."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    _remove_leftovers(path)
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def _remove_leftovers(path: Path) -> None:
    """Removes what writers of the same file left behind when they were killed."""
    named = re.compile(re.escape(f".{path.name}.") + r"(\d+)\.tmp")
    with contextlib.suppress(OSError):
        for entry in os.scandir(path.parent):
            found = named.fullmatch(entry.name)
            if found and not Path(f"/proc/{found[1]}").exists():
                with contextlib.suppress(OSError):
                    Path(entry.path).unlink()
