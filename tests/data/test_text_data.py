"""Text becomes windows of characters; targets are the inputs one character later."""

import os
from pathlib import Path

import pytest
import torch

from paceline import data
from paceline.errors import DataError


def _read(dataset, rows):
    x, y = dataset.prepare(dataset.train.x[rows], dataset.train.y[rows])
    return ["".join(dataset.classes[i] for i in row) for row in x], [
        "".join(dataset.classes[i] for i in row) for row in y
    ]


def test_the_bundled_text_is_english():
    text = data.load("text")
    assert text.kind == "text" and text.shape == (64,)
    inputs, targets = _read(text, slice(0, 2))
    assert inputs[0][1:] == targets[0][:-1] and targets[0][-1] == inputs[1][0]
    assert {" ", "e", "t"} <= set(text.classes) and list(text.classes) == sorted(text.classes)


def test_a_file_is_cut_into_windows_and_its_last_tenth_is_for_testing(tmp_path: Path):
    content = "".join(chr(97 + i % 26) for i in range(1000))
    (tmp_path / "a.txt").write_text(content)
    text = data.load(f"text:{tmp_path}/a.txt?window=10", cache=tmp_path / "cache")
    assert (len(text.train), len(text.test)) == (89, 9)
    inputs, targets = _read(text, torch.tensor([0, 88]))
    assert inputs == [content[:10], content[880:890]] and targets == [content[1:11], content[881:891]]
    x, _ = text.prepare(text.test.x, text.test.y)
    assert "".join(text.classes[i] for i in x[0]) == content[900:910]
    assert x.dtype == torch.int64 and text.train.x.dtype == torch.uint8


def test_many_characters_need_a_wider_type_and_blocks_may_cut_them(tmp_path: Path, monkeypatch):
    from paceline.data import text as module

    monkeypatch.setattr(module, "_BLOCK_BYTES", 7)
    content = "".join(chr(0x4E00 + i % 400) for i in range(5000))
    (tmp_path / "c.txt").write_text(content, encoding="utf-8")
    text = data.load(f"text:{tmp_path}/c.txt", cache=tmp_path / "cache")
    assert text.train.x.dtype == torch.int16 and len(text.classes) == 400
    inputs, _ = _read(text, slice(0, 70))
    assert "".join(inputs) == content[: 70 * 64]


def test_the_encoded_file_is_kept_and_made_again_when_text_or_cache_change(tmp_path: Path):
    path, cache = tmp_path / "a.txt", tmp_path / "cache"
    path.write_text("ab" * 1000)
    data.load(f"text:{path}", cache=cache)
    (kept,) = (cache / "derived").glob("*.npy")
    before = kept.stat().st_mtime_ns
    data.load(f"text:{path}", cache=cache)
    assert kept.stat().st_mtime_ns == before
    path.write_text("xyz" * 1000)
    assert data.load(f"text:{path}", cache=cache).classes == ("x", "y", "z")
    os.truncate(kept, 50)
    assert len(data.load(f"text:{path}", cache=cache).train) == 42


@pytest.mark.parametrize(("content", "says"), [(b"", "empty"), (b"short", "too few"), (b"\xff\xfe" * 900, "UTF-8")])
def test_unsuitable_files_are_refused(tmp_path: Path, content, says):
    (tmp_path / "a.txt").write_bytes(content)
    with pytest.raises(DataError, match=says):
        data.load(f"text:{tmp_path}/a.txt", cache=tmp_path / "cache")


def test_a_missing_file_is_named(tmp_path: Path):
    with pytest.raises(DataError, match=r"nowhere\.txt"):
        data.load(f"text:{tmp_path}/nowhere.txt", cache=tmp_path)
