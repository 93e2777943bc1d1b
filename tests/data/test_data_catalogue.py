"""The catalogue says what there is, and where."""

from pathlib import Path

import pytest

from paceline import data
from paceline.data.cache import cache_folder
from paceline.data.well_known import FASHION_MNIST
from paceline.errors import DataError


def test_the_catalogue_lists_every_name(tmp_path: Path):
    entries = {entry.name: entry for entry in data.available_datasets(cache=tmp_path)}
    assert {"digits", "mnist", "fashion-mnist", "cifar10", "text", "images:PATH"} <= set(entries)
    assert entries["digits"].place and entries["digits"].place.is_file()
    assert entries["mnist"].place is None and entries["mnist"].samples == (60000, 10000)
    digits = data.load("digits")
    assert entries["digits"].samples == (len(digits.train), len(digits.test))


def test_paths_of_what_is_there_and_what_is_not(tmp_path: Path):
    assert data.path("mnist", cache=tmp_path) is None
    assert data.path("digits", cache=tmp_path) == data.fetch("digits", cache=tmp_path)
    assert data.path(f"arrays:{tmp_path}") == tmp_path
    for name in ("nothing", "synthetic:8", "arrays:/no/such/folder"):
        with pytest.raises(DataError):
            data.fetch(name, cache=tmp_path)


def test_the_cache_is_where_the_platform_keeps_caches(tmp_path: Path, monkeypatch):
    assert cache_folder(tmp_path) == tmp_path
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "paceline"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_folder() == Path.home() / ".cache" / "paceline"


def test_checksums_are_whole():
    assert all(len(file.sha256) == 64 for file in FASHION_MNIST.files)
