"""Runs the blocks of one page in order, in this process, in the current directory.

Python blocks of a page share their names. In `console` blocks lines after `$` are commands and the rest is their
output; where a line of output begins with `paceline: `, the command must fail with that line, and where it begins with
`pick: `, the command must print it. `paceline` and `python` run in this process, anything else in a shell.
"""

from __future__ import annotations

import contextlib
import io
import os
import runpy
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paceline.cli import main
from tests.docs.blocks import Block


@dataclass
class Command:
    line: str
    output: list[str] = field(default_factory=list)

    @property
    def failure(self) -> str | None:
        return next((line for line in self.output if line.startswith("paceline: ")), None)


def commands_of(block: Block) -> list[Command]:
    commands: list[Command] = []
    continued = False
    for line in block.text.splitlines():
        if continued:
            commands[-1].line += " " + line.strip().removesuffix("\\")
        elif block.language == "bash" or line.startswith("$ "):
            if not line.strip() or line.startswith("#"):
                continue
            commands.append(Command(line.removeprefix("$ ").removesuffix("\\")))
        else:
            assert commands, f"{block.place}: output before the first command"
            commands[-1].output.append(line)
            continue
        continued = line.endswith("\\")
    return commands


class PageRun:
    """What the blocks of a page leave to the ones after them: names, files, a current directory."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {"__name__": "__main__"}

    def run(self, block: Block) -> None:
        if block.file_name is not None:
            path = Path(block.file_name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
        match block.language:
            case "python":
                exec(compile("\n" * block.line + block.text, block.page, "exec"), self.names)
            case "toml":
                assert block.file_name is not None, f"{block.place}: begin with a comment: # NAME.toml"
                tomllib.loads(block.text)
            case _:
                for command in commands_of(block):
                    self._command(command, block.place)

    def _command(self, command: Command, place: str) -> None:
        words = [path for word in shlex.split(command.line, comments=True) for path in _expanded(word)]
        said, printed = io.StringIO(), io.StringIO()
        if words[0] == "cd":
            os.chdir(words[1])
            return
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(printed):
            code = _call(words, command.line)
        for line in (line for line in command.output if line.startswith("pick: ")):
            assert line in printed.getvalue().splitlines(), f"{place}: {line!r} is not in\n{printed.getvalue()}"
        if command.failure is None:
            assert code == 0, f"{place}: {command.line}\nexit code {code}\n{said.getvalue()}"
        else:
            assert code != 0 and command.failure in said.getvalue().splitlines(), f"{place}: {said.getvalue()}"


def _expanded(word: str) -> list[str]:
    return sorted(map(str, Path().glob(word))) or [word] if "*" in word else [word]


def _call(words: list[str], line: str) -> int:
    if words[0] == "paceline":
        return main(words[1:])
    if words[0] == "python" and words[1].endswith(".py"):
        with _arguments(words[1:]):
            runpy.run_path(words[1], run_name="__main__")
        return 0
    assert words[0] in {"cat", "cp", "ls", "mkdir"}, f"{line}: only a visible mark lets a page have this command"
    return subprocess.run(["bash", "-c", line], timeout=30).returncode


@contextlib.contextmanager
def _arguments(words: list[str]) -> Iterator[None]:
    before = sys.argv
    sys.argv = words
    try:
        yield
    finally:
        sys.argv = before
