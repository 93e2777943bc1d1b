"""Decoded images on disk: found again while their files stay as they are, within a limit, and never a wrong pixel."""

import os
import signal
import sqlite3
from pathlib import Path

import numpy as np
import pytest
import torch

from paceline import data
from paceline.data.decode import Decoder
from paceline.data.decoded_cache import DecodedCache, create, remove
from paceline.data.images import keep_decoded
from paceline.errors import DataError
from paceline.step.build import load_data
from paceline.workload import resolve
from tests.data.pictures import photograph

LIMIT = 50_000_000


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "cache" / "photos.sqlite"
    create(path, LIMIT)
    return path


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    path = tmp_path / "a.jpg"
    photograph(160, 120).save(path, quality=90)
    return path


def _sample(path: Path, cache: DecodedCache | None, *, size: int = 48, index: int = 0, training: bool = True):
    out = np.empty((3, size, size), dtype=np.uint8)
    Decoder(size, 3, training, cache=cache).decode(str(path), 0, index, out)
    return out


def _count_decoding(monkeypatch) -> list[str]:
    decoded: list[str] = []
    whole = Decoder._whole
    monkeypatch.setattr(Decoder, "_whole", lambda self, path: decoded.append(path) or whole(self, path))
    return decoded


def _stored(file: Path) -> int:
    database = sqlite3.connect(file)
    count = database.execute("SELECT count(*) FROM picture").fetchone()[0]
    database.close()
    return count


def _total_bytes(file: Path) -> int:
    return sum(path.stat().st_size for path in file.parent.iterdir() if not path.name.endswith("-shm"))


def test_an_image_is_decoded_once_for_all_its_samples(file, photo, monkeypatch):
    decoded = _count_decoding(monkeypatch)
    cache = DecodedCache(str(file), LIMIT)
    first = [_sample(photo, cache, index=index) for index in range(5)]
    assert len(decoded) == 1
    again = DecodedCache(str(file), LIMIT)
    assert all(np.array_equal(_sample(photo, again, index=index), first[index]) for index in range(5))
    centre = {"training": False, "size": 64}
    assert np.array_equal(_sample(photo, again, **centre), _sample(photo, None, **centre))
    assert len(decoded) == 1
    assert np.array_equal(first[0], _sample(photo, None)), "no view of a small image is decoded smaller"


@pytest.mark.parametrize("suffix", ["jpg", "png"])
def test_a_large_image_is_kept_as_large_as_its_smallest_cut_needs(file, tmp_path: Path, suffix):
    path = tmp_path / f"large.{suffix}"
    photograph(1203, 901).save(path)
    cache = DecodedCache(str(file), LIMIT)
    for index in range(6):
        kept, plain = _sample(path, cache, index=index).astype(int), _sample(path, None, index=index)
        error = ((kept - plain) ** 2).mean()
        assert 10 * np.log10(255**2 / max(error, 1e-9)) > 30
    picture = cache.get(str(path), _never)
    assert (picture.width, picture.height) == (1203, 901)
    assert 160 < picture.pixels.shape[0] < 500


def _never(path: str):
    raise AssertionError("decoded again")


@pytest.mark.parametrize("change", ["content", "time", "size"])
def test_a_file_that_changed_is_decoded_again(file, photo, change, monkeypatch):
    cache = DecodedCache(str(file), LIMIT)
    before = _sample(photo, cache)
    decoded = _count_decoding(monkeypatch)
    if change == "time":
        os.utime(photo, ns=(1, 1))
    elif change == "size":
        photo.write_bytes(photo.read_bytes()[:-2] + b"\0" * 4 + b"\xff\xd9")
    else:
        status = photo.stat()
        photograph(160, 120, seed=1).save(photo, quality=90)
        os.utime(photo, ns=(status.st_atime_ns, status.st_mtime_ns))
    after = _sample(photo, cache)
    assert len(decoded) == 1 and np.array_equal(after, _sample(photo, None))
    assert np.array_equal(before, after) == (change != "content")
    assert _stored(file) == 1, "the new one takes the place of the old one"


def test_a_file_replaced_while_it_is_decoded_is_not_kept(file, photo, monkeypatch):
    whole = Decoder._whole

    def replaced(self, path):
        made = whole(self, path)
        photograph(160, 120, seed=2).save(photo, quality=90)
        return made

    cache = DecodedCache(str(file), LIMIT)
    with monkeypatch.context() as patch:
        patch.setattr(Decoder, "_whole", replaced)
        _sample(photo, cache)
    assert _stored(file) == 0
    assert np.array_equal(_sample(photo, cache), _sample(photo, None))


def test_the_limit_holds_and_samples_stay_the_same(tmp_path: Path, photo):
    limit = 2_000_000
    file = tmp_path / "cache" / "small.sqlite"
    create(file, limit)
    cache = DecodedCache(str(file), limit)
    paths = [tmp_path / f"{number}.jpg" for number in range(60)]
    for number, path in enumerate(paths):
        photograph(160, 120, seed=number).save(path)
        assert np.array_equal(_sample(path, cache), _sample(path, None))
        assert _total_bytes(file) <= limit
    stored = _stored(file)
    assert 10 < stored < 60
    assert all(np.array_equal(_sample(path, cache), _sample(path, None)) for path in paths)
    assert _stored(file) == stored


def test_a_smaller_limit_starts_anew(file, tmp_path: Path):
    cache = DecodedCache(str(file), LIMIT)
    for number in range(40):
        photograph(160, 120, seed=number).save(tmp_path / "b.jpg")
        _sample((tmp_path / "b.jpg").rename(tmp_path / f"{number}.jpg"), cache)
    cache.close()
    assert _total_bytes(file) > 2_000_000
    create(file, 2_000_000)
    assert _stored(file) == 0 and _total_bytes(file) <= 2_000_000


def _lose_page(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2 :] = bytes(len(data) - len(data) // 2)
    file.write_bytes(data)


@pytest.mark.parametrize(
    "damage",
    [
        lambda file: file.write_bytes(b""),
        lambda file: file.write_bytes(b"not a database" * 10_000),
        lambda file: file.write_bytes(file.read_bytes()[: file.stat().st_size // 2]),
        _lose_page,
        remove,
    ],
    ids=["empty", "other", "truncated", "lost pages", "removed"],
)
@pytest.mark.parametrize("created", [True, False])
def test_a_damaged_file_costs_decoding_and_nothing_else(file, tmp_path: Path, damage, created):
    paths = [tmp_path / f"{number}.jpg" for number in range(12)]
    cache = DecodedCache(str(file), LIMIT)
    for number, path in enumerate(paths):
        photograph(160, 120, seed=number).save(path)
        _sample(path, cache)
    cache.close()
    damage(file)
    if created:
        create(file, LIMIT)
    for _ in range(2):
        cache = DecodedCache(str(file), LIMIT)
        assert all(np.array_equal(_sample(path, cache), _sample(path, None)) for path in paths)
        cache.close()
        create(file, LIMIT)
    cache = DecodedCache(str(file), LIMIT)
    assert all(np.array_equal(_sample(path, cache), _sample(path, None)) for path in paths)
    assert _stored(file) == 12, "it is whole again by the third run"


def test_another_writer_is_not_waited_for_long(file, photo, monkeypatch):
    cache = DecodedCache(str(file), LIMIT)
    assert cache._database is not None
    cache._database.execute("PRAGMA busy_timeout = 20")
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    assert np.array_equal(_sample(photo, cache), _sample(photo, None))
    other.execute("ROLLBACK")
    other.close()
    assert _stored(file) == 0
    _sample(photo, cache)
    assert _stored(file) == 1


def test_a_full_disk_stops_adding_only(file, photo, monkeypatch):
    cache = DecodedCache(str(file), LIMIT)

    def full(*_):
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error

    expected = _sample(photo, cache)
    monkeypatch.setattr("paceline.data.decoded_cache._add", full)
    os.utime(photo, ns=(5, 5))
    assert np.array_equal(_sample(photo, cache), expected)
    monkeypatch.setattr("paceline.data.decoded_cache._add", _never)
    assert np.array_equal(_sample(photo, cache), expected)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot create") as error:
        create(tmp_path / "file" / "a.sqlite", LIMIT)
    assert "\n" not in str(error.value)
    (tmp_path / "a.sqlite").mkdir()
    with pytest.raises(DataError, match=r"cannot write .*a\.sqlite: unable to open"):
        create(tmp_path / "a.sqlite", LIMIT)


def test_decoders_share_it_and_may_be_killed(make_images, tmp_path: Path):
    source = f"images:{make_images()}?size=24"
    photos = keep_decoded(data.load(source, cache=tmp_path / "c"), LIMIT)
    options = {"batch": 22, "seed": 1, "training": True, "depth": 1, "readers": 3}
    seen = []
    for killed in (False, True, False):
        reader = photos.train.open(**options)
        reader.request(torch.arange(22), 4)
        if killed:
            for pid in reader.process_ids:
                os.kill(pid, signal.SIGKILL)
        seen.append(reader.receive()[0].clone())
        reader.close()
    assert torch.equal(seen[0], seen[1]) and torch.equal(seen[0], seen[2])
    (file,) = (tmp_path / "c" / "decoded").glob("images-24-*.sqlite")
    assert _stored(file) == 22


def test_the_setting_reaches_the_images_and_is_refused_for_other_data(make_images, tmp_path: Path):
    settings = {"data": f"images:{make_images()}?size=32", "batch": 4}
    assert load_data(resolve("lenet5", settings), tmp_path / "c").train.cache_bytes == 0, "off by default"
    dataset = load_data(resolve("lenet5", settings | {"decoded_cache_gb": "0.5"}), tmp_path / "c")
    assert dataset.train.cache_bytes == dataset.test.cache_bytes == 500_000_000
    assert dataset.first(3).train.cache_bytes == 500_000_000
    with pytest.raises(DataError, match="decoded_cache_gb is for folders of images"):
        load_data(resolve("lenet5", {"data": "digits", "decoded_cache_gb": 1}))
