"""One file over HTTP into a partial file that a later attempt continues (`Range`, RFC 9110 section 14)."""

from __future__ import annotations

import contextlib
import http.client
import threading
import time
import urllib.error
import urllib.request
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

from paceline.data.cache import Progress, disk_error

TIMEOUT_S = 5.0
ATTEMPTS = 3
_BLOCK_BYTES = 1 << 18


class Unavailable(Exception):
    """This place cannot deliver; the next one is tried."""


class _Broken(Exception):
    """The transfer stopped half way; another attempt continues it."""


def download(url: str, part: Path, what: str, progress: Progress | None = None) -> None:
    """Completes `part`. Gives up after `ATTEMPTS` in a row that brought nothing new."""
    idle_attempts = 0
    while True:
        before = _size(part)
        try:
            _continue(url, part, what, progress)
            return
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == 416:
                # The part is longer than the file: it belongs to something else.
                part.unlink(missing_ok=True)
            elif error.code < 500:
                raise Unavailable(f"HTTP {error.code}") from error
            reason = f"HTTP {error.code}"
        except _Broken as error:
            reason = str(error)
        idle_attempts = 0 if _size(part) > before else idle_attempts + 1
        if idle_attempts >= ATTEMPTS:
            raise Unavailable(reason)
        time.sleep(0.1 * idle_attempts)


def _continue(url: str, part: Path, what: str, progress: Progress | None) -> None:
    start = _size(part)
    response = _open(url, start)
    with response:
        if response.status != 206:
            start = 0
        length = response.headers.get("Content-Length")
        total = start + int(length) if length else None
        done = start
        try:
            target = part.open("ab" if start else "wb")
        except OSError as error:
            raise disk_error(part, error) from error
        with target:
            while block := _read(response):
                try:
                    target.write(block)
                    target.flush()
                except OSError as error:
                    # Closing would try to write the rest once more.
                    with contextlib.suppress(OSError):
                        target.close()
                    part.unlink(missing_ok=True)
                    raise disk_error(part, error) from error
                done += len(block)
                if progress is not None:
                    progress(what, done, total)
    if total is not None and done < total:
        raise _Broken(f"ended after {done} of {total} bytes")


def _read(response: HTTPResponse) -> bytes:
    try:
        return response.read(_BLOCK_BYTES)
    except (OSError, http.client.HTTPException) as error:
        raise _Broken(f"broke off: {error}") from error


def _open(url: str, start: int) -> HTTPResponse:
    """Opens in a thread that is given up on, because looking up a name has no timeout of its own."""
    headers = {"User-Agent": "paceline", "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    request = urllib.request.Request(url, headers=headers)
    outcome: list[Any] = []

    def connect() -> None:
        try:
            outcome.append(urllib.request.urlopen(request, timeout=TIMEOUT_S))
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=connect, daemon=True)
    thread.start()
    thread.join(TIMEOUT_S + 1)
    result = outcome[0] if outcome else TimeoutError("no answer")
    if isinstance(result, urllib.error.HTTPError):
        raise result
    if isinstance(result, Exception):
        raise Unavailable(_short(result)) from result
    assert isinstance(result, HTTPResponse)
    return result


def _short(error: Exception) -> str:
    reason = getattr(error, "reason", error)
    return str(getattr(reason, "strerror", None) or reason)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
