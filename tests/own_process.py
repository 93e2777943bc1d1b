"""A process of its own for a test, which starts in a moment: it is forked from a server that has imported everything.

It is used like `subprocess.Popen`. What a test says about importing, or about the interpreter's start and end, needs a
process that was started as users start theirs.
"""

from __future__ import annotations

import fcntl
import json
import os
import runpy
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from paceline.training.drivers.local.process_server import process_server

IMPORTS = ("paceline.cli.train", "paceline.training.trainer", "paceline.reporting", "sklearn.datasets", __name__)
HIGH = 100
"""Above the descriptors of a process that does little."""


class OwnProcess:
    """`words` are what `python` is given: `-m MODULE` with arguments, or `-c PROGRAM` with arguments.

    With `session` it leads a session, as a shell's foreground job; with `quiet` nobody reads what it says.
    """

    def __init__(
        self, words: Sequence[str | Path], *, cwd: Path | None = None, pass_fds: Sequence[int] = (),
        errors_too: bool = False, quiet: bool = False, session: bool = False,
    ) -> None:  # fmt: skip
        (out, given_out), (err, given_err) = os.pipe(), os.pipe()
        task = [list(map(str, words)), str(cwd or Path.cwd()), errors_too, quiet, list(pass_fds), session]
        self.server = process_server()
        given = [given_out, given_err, *pass_fds]
        self.forked = self.server.fork(f"{__name__}:become", json.dumps(task), given, imports=IMPORTS)
        self.pid = self.forked.process_id
        for descriptor in (given_out, given_err):
            os.close(descriptor)
        self.stdout, self.stderr = os.fdopen(out), os.fdopen(err)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Nothing of it outlives the test."""
        self.kill()
        self.wait()
        self.stdout.close()
        self.stderr.close()

    @property
    def returncode(self) -> int | None:
        return self.forked.ended.code if self.forked.ended is not None else None

    def poll(self) -> int | None:
        self.forked.poll()
        return self.returncode

    def wait(self, timeout: float = 150.0) -> int:
        until_s = time.monotonic() + timeout
        while (code := self.poll()) is None:
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
            self.server.wait(min(left_s, 0.05))
        return code

    def communicate(self, timeout: float = 150.0) -> tuple[str, str]:
        """What it still says until it ends; for processes that say little on standard error."""
        out = self.stdout.read()
        err = self.stderr.read()
        self.wait(timeout)
        return out, err

    def send_signal(self, number: int) -> None:
        self.forked.signal(number)

    def kill(self) -> None:
        self.forked.kill()


def program(*arguments: str | Path, **how: object) -> OwnProcess:
    """The command line."""
    return OwnProcess(["-m", "paceline", *arguments], **how)  # type: ignore[arg-type]


def become(text: str, descriptors: list[int]) -> None:
    """In the forked process."""
    words, directory, errors_too, quiet, numbers, session = json.loads(text)
    if session:
        os.setsid()
    moved = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, HIGH) for descriptor in descriptors]
    for descriptor in descriptors:
        os.close(descriptor)
    out, err, *passed = moved
    if quiet:
        out = err = os.open(os.devnull, os.O_WRONLY)
    for source, target in ((out, 1), (out if errors_too else err, 2), *zip(passed, numbers, strict=True)):
        os.dup2(source, target)
    for descriptor in moved:
        os.close(descriptor)
    os.chdir(directory)
    kind, what, *arguments = words
    sys.path.insert(0, "" if kind == "-c" else directory)
    sys.argv = [kind, *arguments]
    code: object = 0
    try:
        if kind == "-c":
            exec(compile(what, "<program>", "exec"), {"__name__": "__main__"})
        else:
            runpy.run_module(what, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))
