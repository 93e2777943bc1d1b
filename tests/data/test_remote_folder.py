"""A remote folder is copied once, then only its changes travel."""

import functools
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import fsspec
import pytest

from paceline import data
from paceline.errors import DataError


@pytest.fixture
def remote(make_images):
    """A bucket in memory that holds the small tree of images."""
    memory = fsspec.filesystem("memory")
    memory.store.clear()
    memory.pseudo_dirs[:] = [""]
    memory.put(str(make_images()), "/bucket", recursive=True)
    yield memory
    memory.store.clear()


class _Progress:
    def __init__(self) -> None:
        self.reports: list[tuple] = []

    def __call__(self, *report) -> None:
        self.reports.append(report)


def test_only_new_and_changed_files_travel_and_removed_ones_disappear(remote, tmp_path: Path):
    cache = tmp_path / "cache"
    photos = data.load("images:memory://bucket?size=16:5", cache=cache)
    assert photos.classes == ("cat", "dog") and len(photos.train) == 5
    again = _Progress()
    data.load("images:memory://bucket", cache=cache, progress=again)
    assert again.reports == []

    new, changed = remote.cat("/bucket/cat/001.jpg"), remote.cat("/bucket/cat/003.jpg")
    remote.pipe("/bucket/bird/000.jpg", new)
    remote.pipe("/bucket/bird/001.jpg", new)
    remote.pipe("/bucket/dog/001.jpg", changed)
    remote.rm("/bucket/dog/000.png")
    changes = _Progress()
    photos = data.load("images:memory://bucket", cache=cache, progress=changes)
    assert photos.classes == ("bird", "cat", "dog")
    assert changes.reports[-1][1:] == (2 * len(new) + len(changed),) * 2 and len(changes.reports) == 3
    local = data.path("images:memory://bucket", cache=cache)
    assert local is not None and (local / "dog/001.jpg").read_bytes() == changed
    assert not (local / "dog/000.png").exists()
    assert not list(local.rglob("*.tmp"))


def test_a_damaged_or_lost_local_copy_is_repaired(remote, tmp_path: Path):
    local = data.fetch("images:memory://bucket", cache=tmp_path)
    (local / "cat/001.jpg").write_bytes(b"")
    (local / "cat/002.png").unlink()
    assert data.fetch("images:memory://bucket", cache=tmp_path) == local
    assert (local / "cat/001.jpg").read_bytes() == remote.cat("/bucket/cat/001.jpg")
    assert (local / "cat/002.png").exists()


def test_an_interrupted_copy_is_not_taken_for_a_whole_one(remote, tmp_path: Path):
    def interrupt(*report) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        data.fetch("images:memory://bucket", cache=tmp_path, progress=interrupt)
    assert data.path("images:memory://bucket", cache=tmp_path) is None
    data.fetch("images:memory://bucket", cache=tmp_path)
    assert data.path("images:memory://bucket", cache=tmp_path) is not None


def test_without_synchronising_the_copy_is_used_as_it_is(remote, tmp_path: Path):
    data.fetch("images:memory://bucket", cache=tmp_path)
    remote.store.clear()
    assert len(data.load("images:memory://bucket?sync=no", cache=tmp_path).train) == 22
    with pytest.raises(DataError, match="memory://bucket"):
        data.load("images:memory://bucket", cache=tmp_path)


def test_a_file_address_works(make_images, tmp_path: Path):
    photos = data.load(f"images:file://{make_images()}?size=16", cache=tmp_path / "cache")
    assert len(photos.train) == 22


def test_a_web_folder_works(make_images, tmp_path: Path):
    pytest.importorskip("aiohttp")

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

    root = make_images(count=3)
    listening = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(root)))
    threading.Thread(target=listening.serve_forever, args=(0.01,), daemon=True).start()
    try:
        address = f"images:http://127.0.0.1:{listening.server_port}/"
        assert data.load(address, cache=tmp_path / "cache").classes == ("cat", "dog")
        again = _Progress()
        data.load(address, cache=tmp_path / "cache", progress=again)
        assert again.reports == []
    finally:
        listening.shutdown()
        listening.server_close()


@pytest.mark.parametrize("address", ["http://127.0.0.1:9/photos", "nosuch://bucket", "memory://empty"])
def test_an_address_that_leads_nowhere_is_named(address, tmp_path: Path):
    with pytest.raises(DataError, match=address.split(":")[0]) as error:
        data.load(f"images:{address}", cache=tmp_path)
    assert "\n" not in str(error.value)
