"""A forked process is where its caller is, and an experiment's runs are forked from the server of local runs."""

from __future__ import annotations

import json
import os
from pathlib import Path

from paceline.experiment.processes import Processes
from paceline.training.drivers.local.process_server import process_server


def say_where(text: str, descriptors: list[int]) -> None:
    os.write(descriptors[0], json.dumps([text, str(Path.cwd()), os.environ.get("WORD")]).encode())


def said() -> list[str | None]:
    server = process_server()
    reads, writes = os.pipe()
    child = server.fork(f"{__name__}:say_where", "hello", [writes])
    os.close(writes)
    with os.fdopen(reads) as pipe:
        found = json.load(pipe)
    child.wait()
    assert child.ended is not None and child.ended.code == 0
    return found


def test_a_forked_process_has_the_directory_and_the_environment_that_its_caller_has_now(tmp_path, monkeypatch):
    monkeypatch.delenv("WORD", raising=False)
    assert said() == ["hello", str(Path.cwd()), None]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WORD", "given later")
    assert said() == ["hello", str(tmp_path), "given later"]


def test_a_directory_that_was_removed_is_no_obstacle(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert said()[0] == "hello"


def test_experiments_share_the_server_which_stays_for_the_next():
    with Processes() as first:
        pass
    with Processes() as second:
        assert first.server is second.server is process_server() and second.server.alive
