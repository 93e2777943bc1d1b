"""A run has a directory of its own: never another run's, never one that cannot be written."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline import record
from paceline.directory_lock import DirectoryLock
from paceline.errors import CheckpointError, OutputError
from paceline.output_directory import check_new, claimed, next_directory
from paceline.training.resuming import claimed_to_resume, resumable_directory
from tests.own_process import OwnProcess

NOBODY = 65534


def test_a_claimed_directory_is_locked_and_taken_back_if_nothing_is_written(tmp_path):
    with claimed(tmp_path / "a" / "b") as made:
        assert made == tmp_path / "a" / "b"
        with pytest.raises(OutputError, match="belongs to a run that has just started"), claimed(made):
            pass
    assert not (tmp_path / "a").exists()
    with claimed(tmp_path / "c") as made:
        (made / "record.json").write_text("{}")
    assert [each.name for each in (tmp_path / "c").iterdir()] == ["record.json"]
    with claimed(None) as made:
        assert made is None


def test_looking_at_a_directory_makes_nothing(tmp_path):
    check_new(tmp_path / "a")
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("name", ["record.json", ".hidden"])
def test_one_that_holds_something_is_refused(tmp_path, name):
    (tmp_path / name).write_text("")
    with pytest.raises(OutputError, match=f"`out='{tmp_path}'` is not empty.*resume"):
        check_new(tmp_path)
    with pytest.raises(OutputError, match=f"`out='{tmp_path}'` is not empty.*resume"), claimed(tmp_path):
        pass


def test_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match=r"`out=.*file.` is a file: choose a directory"):
        check_new(tmp_path / "file")
    refused = pytest.raises(OutputError, match=r"`out=.*run.` cannot be (read|written): Not a directory")
    with refused, claimed(tmp_path / "file" / "run"):
        pass


@pytest.fixture
def locked() -> Iterator[Path]:
    """A directory that may be read but not written; root, who may write anywhere, is somebody else for a moment."""
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o555)
        user = os.geteuid()
        if user == 0:
            os.seteuid(NOBODY)
        yield Path(place)
        os.seteuid(user)


def test_one_that_cannot_be_written_is_refused(locked):
    with pytest.raises(OutputError, match="cannot be written: Permission denied"), claimed(locked / "run"):
        pass


def test_the_next_one_is_the_first_that_is_free(tmp_path):
    parent = tmp_path / "runs"
    assert next_directory("demo", parent) == parent / "demo-1"
    (parent / "demo-3").mkdir()
    assert next_directory("demo", parent) == parent / "demo-2"
    assert next_directory("demo", parent) == parent / "demo-4"
    assert all((parent / f"demo-{number}").is_dir() for number in (1, 2, 3, 4))


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("mlp-digits", "mlp-digits-1"),
        ("mlp-images:/tmp/a b?size=3", "mlp-images-tmp-a-b-size-3-1"),
        ("../../etc", "..-..-etc-1"),
        ("///", "run-1"),
        ("x" * 200, "x" * 60 + "-1"),
    ],
)
def test_a_name_becomes_one_word_inside_the_parent(name, word, tmp_path):
    found = next_directory(name, tmp_path / "runs")
    assert found.parent == tmp_path / "runs" and found.name == word


def test_only_a_directory_with_a_checkpoint_can_be_resumed(tmp_path):
    with pytest.raises(CheckpointError, match="none: no such directory"):
        resumable_directory(tmp_path / "none")
    with pytest.raises(CheckpointError, match=r"has neither record\.json nor checkpoint\.pt"):
        resumable_directory(tmp_path)
    (tmp_path / "record.json").write_text("")
    with pytest.raises(CheckpointError, match=r"has no checkpoint\.pt: the run stopped before its first one"):
        resumable_directory(tmp_path)
    (tmp_path / "checkpoint.pt").write_text("")
    assert resumable_directory(tmp_path) == tmp_path


def test_a_claimed_directory_is_nobody_elses(tmp_path):
    with claimed(tmp_path / "run") as mine:
        assert mine == tmp_path / "run"
        taken = pytest.raises(OutputError, match=rf"`out='{mine}'` belongs to a run.*\(process {os.getpid()}\)")
        with taken, claimed(mine):
            pass
        (mine / "checkpoint.pt").write_text("")
        taken = pytest.raises(OutputError, match=rf"{mine}: .*\(process {os.getpid()}\)")
        with taken, claimed_to_resume(mine):
            pass
    with claimed_to_resume(mine):
        pass
    assert [path.name for path in mine.iterdir()] == ["checkpoint.pt"], "the lock is removed"


def test_a_start_that_fails_leaves_nothing_that_it_made(tmp_path):
    with pytest.raises(KeyError), claimed(tmp_path / "a" / "b"):
        raise KeyError
    assert not (tmp_path / "a").exists()
    (tmp_path / "given").mkdir()
    with claimed(tmp_path / "given"):
        pass
    assert list((tmp_path / "given").iterdir()) == [], "a directory that was there stays"


def test_a_directory_with_only_a_lock_is_empty(tmp_path):
    (tmp_path / ".lock").write_text("123456789 elsewhere")
    check_new(tmp_path)
    with claimed(tmp_path):
        pass


def test_one_with_a_result_is_refused_and_not_locked(tmp_path):
    (tmp_path / "record.json").write_text("")
    with pytest.raises(OutputError, match="is not empty"), claimed(tmp_path):
        pass
    DirectoryLock(tmp_path, str).close()


HOLD = """
import sys, time
from paceline.output_directory import claimed
with claimed(sys.argv[1]):
    print("claimed", flush=True)
    time.sleep(60)
"""


def test_the_kernel_releases_the_lock_of_a_killed_run(tmp_path):
    with OwnProcess(["-c", HOLD, tmp_path / "run"]) as holder:
        assert holder.stdout.readline() == "claimed\n"
        with pytest.raises(OutputError, match=rf"\(process {holder.pid}\)"), claimed(tmp_path / "run"):
            pass
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        with claimed(tmp_path / "run"):
            pass


def test_a_child_does_not_keep_the_lock_of_its_parent(tmp_path):
    with claimed(tmp_path / "run"):
        child = os.fork()
        if child == 0:
            time.sleep(30)
            os._exit(0)
    try:
        with claimed(tmp_path / "run"):
            pass
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def simultaneous_starts(place: Path, pairs: int, kind: str) -> None:
    with OwnProcess(["-m", "tests.training.simultaneous_starts", place, str(pairs), kind]) as process:
        out, err = process.communicate()
        assert process.returncode == 0, err
    rows = [json.loads(line) for line in out.splitlines()]
    assert len(rows) == pairs
    for row in rows:
        assert row["told"].count("won") == 1, row
        [lost] = [told for told in row["told"] if told != "won"]
        winner = row["pids"][row["told"].index("won")]
        assert row["directory"] in lost and "\n" not in lost, row
        assert f"(process {winner})" in lost or "is not empty" in lost, row
        found = record.load(row["directory"])
        assert found.status == "finished" and len(found.epochs) == (1 if kind == "new" else 2)
        assert not (Path(row["directory"]) / ".lock").exists()


@pytest.mark.parametrize("kind", ["new", "resume"])
def test_of_two_runs_started_at_once_exactly_one_wins(tmp_path, kind):
    simultaneous_starts(tmp_path, 5, kind)


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["new", "resume"])
def test_of_two_runs_started_at_once_exactly_one_wins_fifty_times(tmp_path, kind):
    simultaneous_starts(tmp_path, 50, kind)
