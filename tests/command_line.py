"""The program, called in this process as on a command line: much cheaper than a process that imports torch.

Fixtures for every room are made of this in `tests/conftest.py`. A real process is for what only one has: signals,
pipes, exit codes, what importing does.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from paceline.cli import main


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as JSON; anything else on it is an error."""
        return json.loads(self.out, parse_constant=pytest.fail)

    def refused(self, code: int = 2) -> str:
        """The one line that a failing program says, and nothing but that line."""
        assert self.code == code, self.out + self.err
        lines = self.err.splitlines()
        assert len(lines) == 1, self.err
        assert lines[0].startswith("paceline: ") and "Traceback" not in lines[0]
        return lines[0].removeprefix("paceline: ")


@pytest.fixture
def paceline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> Callable[..., Result]:
    monkeypatch.chdir(tmp_path)
    # Tables are drawn for a width; a narrow one would break words that tests look for.
    monkeypatch.setenv("COLUMNS", "200")

    def call(*arguments: str | Path) -> Result:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return Result(code, out, err)

    return call


@pytest.fixture(scope="session")
def trained(tmp_path_factory) -> Path:
    """A finished run of mlp on digits with the defaults; not to be changed."""
    place = tmp_path_factory.mktemp("trained") / "run"
    assert main(["train", "mlp", "--out", str(place)]) == 0
    return place


@pytest.fixture
def trained_copy(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "copy"))
