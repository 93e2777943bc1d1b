"""A file is written whole or not at all; only regular files are replaced."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from paceline.errors import OutputError
from paceline.output_file import write_atomically

DEAD = 2**22 + 1
"""More than any process id."""


def test_a_regular_file_is_replaced(tmp_path):
    path = tmp_path / "a.json"
    path.write_text("before")
    number = path.stat().st_ino
    write_atomically(path, "after")
    assert path.read_text() == "after" and path.stat().st_ino != number
    assert [each.name for each in tmp_path.iterdir()] == ["a.json"]


def test_of_a_symbolic_link_the_target_is_written(tmp_path):
    (tmp_path / "there").mkdir()
    link = tmp_path / "link.json"
    link.symlink_to("there/real.json")
    write_atomically(link, "1")  # a target that does not exist yet
    write_atomically(link, "2")
    assert link.is_symlink() and (tmp_path / "there" / "real.json").read_text() == "2"


def test_a_named_pipe_is_written_to(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()), daemon=True)
    reader.start()
    write_atomically(pipe, "text")
    reader.join(60)
    assert read == ["text"] and stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_device_is_written_to():
    """A terminal of its own: nothing can be moved over it, so a writer that tried to replace it would do no harm."""
    here, there = os.openpty()
    with os.fdopen(here, "rb", buffering=0) as screen, os.fdopen(there, "wb") as terminal:
        device = Path(os.ttyname(terminal.fileno()))
        write_atomically(device, "text")
        assert screen.read(4) == b"text" and stat.S_ISCHR(device.stat().st_mode)


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_standard_output_by_name_keeps_what_was_printed(tmp_path, name):
    program = f"from paceline.output_file import *; print('a'); write_atomically(Path('{name}'), 'b\\n'); print('c')"
    out = tmp_path / "out.txt"
    with out.open("w") as file:
        subprocess.run([sys.executable, "-c", program], stdout=file, check=True, timeout=60)
    assert out.read_text() == "a\nb\nc\n"


@pytest.mark.parametrize("name", ["/", ".", "loop", "loop/a.json", "file/a.json", "a\0b", "n" * 300])
def test_a_place_that_cannot_be_written_is_one_line(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    Path("loop").symlink_to("loop")
    Path("file").touch()
    with pytest.raises(OutputError, match="cannot write") as raised:
        write_atomically(Path(name), "text")
    assert "\n" not in str(raised.value)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["file", "loop"]


def test_leftovers_of_dead_writers_are_removed(tmp_path):
    path = tmp_path / "record.json"
    mine, others = tmp_path / f".record.json.{DEAD}.tmp", tmp_path / f".other.json.{DEAD}.tmp"
    alive = tmp_path / f".record.json.{os.getppid()}.tmp"
    for each in (mine, others, alive):
        each.touch()
    write_atomically(path, "{}")
    assert not mine.exists() and others.exists() and alive.exists()


def test_nothing_is_left_when_writing_is_interrupted(tmp_path, monkeypatch):
    def interrupt(descriptor: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "a.json", "text")
    assert list(tmp_path.iterdir()) == []
