"""Published files come from the first place that has them, whole and verified, or not at all."""

import gzip
import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from paceline.data import download
from paceline.data.places import Folder, Mirror, PublishedFile
from paceline.data.published import Published, obtain, present
from paceline.errors import DataError

CONTENT = os.urandom(300_000)


def _published(*places, content=CONTENT) -> Published:
    file = PublishedFile("numbers.bin", hashlib.sha256(content).hexdigest(), len(content))
    return Published("numbers", "", (file,), places, (1, 1), (1,), ())


@pytest.fixture(autouse=True)
def _short_timeouts(monkeypatch):
    monkeypatch.setattr(download, "TIMEOUT_S", 1.0)


def _part(cache: Path, url: str) -> Path:
    folder = cache / "numbers"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"numbers.bin.{hashlib.sha256(url.encode()).hexdigest()[:8]}.part"


def test_a_file_is_downloaded_once_with_progress(server, tmp_path: Path):
    server.files["d/numbers.bin"] = CONTENT
    seen = []
    published = _published(Mirror(f"{server.url}/d/"))
    for _ in range(2):
        (path,) = obtain(published, tmp_path, progress=lambda *report: seen.append(report))
        assert path.read_bytes() == CONTENT
    assert len(server.ranges) == 1
    assert seen[-1] == ("numbers.bin", len(CONTENT), len(CONTENT))
    assert sorted(p.name for p in path.parent.iterdir()) == [".lock", "numbers.bin"]


def test_compressed_files_are_unpacked_and_their_content_verified(server, tmp_path: Path):
    server.files["numbers.bin.gz"] = gzip.compress(CONTENT)
    (path,) = obtain(_published(Mirror(server.url, ".gz")), tmp_path)
    assert path.read_bytes() == CONTENT


def test_a_partial_file_is_continued(server, tmp_path: Path):
    server.files["numbers.bin"] = CONTENT
    _part(tmp_path, f"{server.url}/numbers.bin").write_bytes(CONTENT[:1000])
    (path,) = obtain(_published(Mirror(server.url)), tmp_path)
    assert path.read_bytes() == CONTENT and server.ranges == ["bytes=1000-"]


def test_a_transfer_that_breaks_off_is_continued(server, tmp_path: Path):
    server.files["numbers.bin"] = CONTENT
    server.cut_after = [70_000, 50_000]
    (path,) = obtain(_published(Mirror(server.url)), tmp_path)
    assert path.read_bytes() == CONTENT
    assert server.ranges == [None, "bytes=70000-", "bytes=120000-"]


def test_a_server_without_ranges_starts_from_the_beginning(server, tmp_path: Path):
    server.files["numbers.bin"] = CONTENT
    server.understands_ranges = False
    _part(tmp_path, f"{server.url}/numbers.bin").write_bytes(CONTENT[:1000])
    (path,) = obtain(_published(Mirror(server.url)), tmp_path)
    assert path.read_bytes() == CONTENT


@pytest.mark.parametrize("rubbish", [b"x" * 1000, b"x" * 400_000])
def test_a_partial_file_of_something_else_is_thrown_away(server, tmp_path: Path, rubbish):
    server.files["numbers.bin"] = CONTENT
    _part(tmp_path, f"{server.url}/numbers.bin").write_bytes(rubbish)
    (path,) = obtain(_published(Mirror(server.url)), tmp_path)
    assert path.read_bytes() == CONTENT


def test_wrong_content_is_refused_and_the_next_place_tried(server, tmp_path: Path):
    server.files["bad/numbers.bin"] = b"?" + CONTENT[1:]
    server.files["short/numbers.bin.gz"] = gzip.compress(CONTENT)[:-500]
    server.files["good/numbers.bin"] = CONTENT
    bad, short, good = (
        Mirror(f"{server.url}/bad"),
        Mirror(f"{server.url}/short", ".gz"),
        Mirror(f"{server.url}/good"),
    )
    with pytest.raises(DataError) as error:
        obtain(_published(bad, short), tmp_path)
    assert "wrong SHA-256" in str(error.value) and "cannot be unpacked" in str(error.value)
    assert "paceline data fetch numbers" in str(error.value) and "\n" not in str(error.value)
    assert present(_published(), tmp_path) is None
    (path,) = obtain(_published(bad, short, good), tmp_path)
    assert path.read_bytes() == CONTENT


def test_places_that_do_not_answer_are_passed_quickly(server, tmp_path: Path):
    server.files["numbers.bin"] = CONTENT
    server.status = [404, 503, 503, 503]
    places = (
        Folder(tmp_path / "nowhere"),
        Mirror("http://127.0.0.1:9"),
        Mirror("http://no-such-host.invalid"),
        *(Mirror(server.url) for _ in range(3)),
    )
    start = time.monotonic()
    (path,) = obtain(_published(*places), tmp_path)
    assert path.read_bytes() == CONTENT and time.monotonic() - start < 5


def test_a_temporary_failure_of_the_server_is_tried_again(server, tmp_path: Path):
    server.files["numbers.bin"] = CONTENT
    server.status = [503]
    assert obtain(_published(Mirror(server.url)), tmp_path)


@pytest.mark.parametrize("damage", ["truncate", "modify", "modify and hide"])
def test_a_damaged_file_in_the_cache_is_found_and_fetched_again(server, tmp_path: Path, damage):
    server.files["numbers.bin"] = CONTENT
    published = _published(Mirror(server.url))
    (path,) = obtain(published, tmp_path)
    status = path.stat()
    if damage == "truncate":
        os.truncate(path, 1000)
    else:
        with path.open("r+b") as stream:
            stream.seek(5000)
            stream.write(b"damage")
    if damage == "modify and hide":
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(DataError, match=r"numbers\.bin is corrupt"):
        obtain(_published(), tmp_path)
    assert obtain(published, tmp_path)[0].read_bytes() == CONTENT


def test_a_full_disk_is_said_in_one_line(server, tmp_path: Path):
    server.files["numbers.bin"] = CONTENT
    _part(tmp_path, f"{server.url}/numbers.bin").symlink_to("/dev/full")
    with pytest.raises(DataError, match="No space left on device; free some space"):
        obtain(_published(Mirror(server.url)), tmp_path)


def test_a_cache_that_cannot_be_made_is_named(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot create"):
        obtain(_published(), tmp_path / "file" / "cache")


def test_the_users_own_folder_is_used_in_place_or_unpacked(tmp_path: Path):
    mine, cache = tmp_path / "mine", tmp_path / "cache"
    mine.mkdir()
    with pytest.raises(DataError, match=r"numbers\.bin is not there"):
        obtain(_published(), cache, given=mine)
    (mine / "numbers.bin.gz").write_bytes(gzip.compress(CONTENT))
    (path,) = obtain(_published(), cache, given=mine)
    assert path.read_bytes() == CONTENT and path.is_relative_to(cache)
    (mine / "numbers.bin").write_bytes(CONTENT)
    assert obtain(_published(), cache, given=mine) == (mine / "numbers.bin",)
    (mine / "numbers.bin").write_bytes(b"?" * len(CONTENT))
    (mine / "numbers.bin.gz").unlink()
    with pytest.raises(DataError, match="wrong SHA-256"):
        obtain(_published(), tmp_path / "other", given=mine)
    with pytest.raises(DataError, match="is not a folder"):
        obtain(_published(), cache, given=tmp_path / "nowhere")


def test_processes_that_fetch_at_once_share_one_download(server, tmp_path: Path):
    server.files["numbers.bin"] = CONTENT
    script = (
        "import sys; from pathlib import Path\n"
        "from paceline.data.places import Mirror, PublishedFile\n"
        "from paceline.data.published import Published, obtain\n"
        "file = PublishedFile('numbers.bin', sys.argv[1], int(sys.argv[2]))\n"
        "places = (Mirror(sys.argv[3]),)\n"
        "obtain(Published('numbers', '', (file,), places, (1, 1), (1,), ()), Path(sys.argv[4]))\n"
    )
    arguments = [hashlib.sha256(CONTENT).hexdigest(), str(len(CONTENT)), server.url, str(tmp_path)]
    running = [subprocess.Popen([sys.executable, "-c", script, *arguments]) for _ in range(4)]
    assert [process.wait(150) for process in running] == [0] * 4
    assert len(server.ranges) == 1
    assert (tmp_path / "numbers" / "numbers.bin").read_bytes() == CONTENT
