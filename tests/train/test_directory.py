"""A run has a directory of its own: never another run's, never one that cannot be written."""

from __future__ import annotations

import os

import pytest

from paceline.errors import CheckpointError, OutputError
from paceline.train.directory import check_new, new_directory, next_directory, resumable_directory


def test_a_new_directory_is_made_with_its_parents_and_left_empty(tmp_path):
    made = new_directory(tmp_path / "a" / "b")
    assert made.is_dir() and list(made.iterdir()) == []
    assert new_directory(made) == made, "an empty one will do"


def test_looking_at_a_directory_makes_nothing(tmp_path):
    check_new(tmp_path / "a")
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("name", ["record.json", ".hidden"])
def test_one_that_holds_something_is_refused(tmp_path, name):
    (tmp_path / name).write_text("")
    for check in (check_new, new_directory):
        with pytest.raises(OutputError, match=f"--out {tmp_path} is not empty.*--resume {tmp_path}"):
            check(tmp_path)


def test_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match=r"--out .*file is a file: choose a directory"):
        check_new(tmp_path / "file")
    with pytest.raises(OutputError, match=r"--out .*run cannot be (read|written): Not a directory"):
        new_directory(tmp_path / "file" / "run")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_one_that_cannot_be_written_is_refused(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(OutputError, match="cannot be written: Permission denied"):
        new_directory(tmp_path / "run")


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
    with pytest.raises(CheckpointError, match=r"--resume .*none: there is no such directory"):
        resumable_directory(tmp_path / "none")
    with pytest.raises(CheckpointError, match=r"it has no checkpoint\.pt"):
        resumable_directory(tmp_path)
    (tmp_path / "checkpoint.pt").write_text("")
    assert resumable_directory(tmp_path) == tmp_path
