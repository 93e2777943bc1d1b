"""The fast path for JPEG files gives the samples that Pillow gives, and leaves to Pillow what is not plain."""

import io
import math
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from paceline.data import decode, jpeg, resample
from paceline.data.decode import Decoder
from paceline.data.jpeg import eighths_for, plain_jpeg
from tests.data.pictures import photograph

SUBSAMPLINGS = {"4:4:4": 0, "4:2:2": 1, "4:2:0": 2}


def _jpeg(image: Image.Image, **options) -> bytes:
    stream = io.BytesIO()
    image.save(stream, "JPEG", **({"quality": 88} | options))
    return stream.getvalue()


def _sample(path: Path, size: int, *, fast: bool, training: bool = True, index: int = 0):
    out = np.empty((3, size, size), dtype=np.uint8)
    Decoder(size, 7, training, fast).decode(str(path), 0, index, out)
    return out.astype(int)


def _fails(*_):
    raise AssertionError("the other path was taken")


@pytest.fixture
def only_fast(monkeypatch):
    monkeypatch.setattr(Decoder, "_by_pillow", _fails)


@pytest.mark.parametrize("subsampling", SUBSAMPLINGS)
@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("size", [32, 224])
def test_samples_are_those_of_pillow(tmp_path: Path, monkeypatch, subsampling, progressive, size):
    path = tmp_path / "a.jpg"
    path.write_bytes(_jpeg(photograph(413, 311), subsampling=SUBSAMPLINGS[subsampling], progressive=progressive))
    cases = [(True, index) for index in range(8)] + [(False, 0)]
    slow = [_sample(path, size, fast=False, training=training, index=index) for training, index in cases]
    monkeypatch.setattr(Decoder, "_by_pillow", _fails)
    fast = [_sample(path, size, fast=True, training=training, index=index) for training, index in cases]
    error = np.mean([(a - b) ** 2 for a, b in zip(fast, slow, strict=True)])
    assert 10 * math.log10(255**2 / max(error, 1e-9)) > 45
    if size == 224:  # decoded as a whole by both
        assert max(np.abs(a - b).max() for a, b in zip(fast, slow, strict=True)) <= 1


def test_the_resizer_alone_differs_by_at_most_one(monkeypatch):
    pixels = np.asarray(photograph(320, 240))
    for box in ((0, 0, 320, 240), (3, 5, 100, 81), (41.3, 20.5, 300.7, 239.1)):
        fast = resample.resample(pixels, box, 96).astype(int)
        with monkeypatch.context() as patch:
            patch.setattr(resample, "Resizer", None)
            slow = resample.resample(pixels, box, 96)
        whole = Image.fromarray(pixels).resize((96, 96), Image.Resampling.BILINEAR, box=box)
        # Where the box begins between two pixels, the shorter coordinates are rounded differently.
        assert np.abs(slow.astype(int) - np.asarray(whole)).mean() <= (0 if isinstance(box[0], int) else 1e-4)
        assert 0 < np.abs(fast - slow).max() <= 1


@pytest.mark.parametrize("subsampling", SUBSAMPLINGS)
@pytest.mark.parametrize("eighths", [1, 2, 4, 8])
def test_the_first_rows_are_those_of_the_whole_image(subsampling, eighths):
    found = plain_jpeg(_jpeg(photograph(150, 203), subsampling=SUBSAMPLINGS[subsampling]))
    assert found is not None
    whole = found.decode(eighths)
    assert whole.shape == (math.ceil(203 * eighths / 8), math.ceil(150 * eighths / 8), 3)
    for rows in range(1, len(whole), 3):
        part = found.decode(eighths, rows)
        assert len(part) >= rows and np.array_equal(part[:rows], whole[:rows])
    assert len(found.decode(eighths, 2)) < len(whole)


def test_the_rows_below_the_cut_are_not_decoded(tmp_path: Path, only_fast, monkeypatch):
    decoded = []
    plain = jpeg.PlainJpeg.decode
    monkeypatch.setattr(
        jpeg.PlainJpeg, "decode", lambda *given, **named: decoded.append(plain(*given, **named)) or decoded[-1]
    )
    (tmp_path / "a.jpg").write_bytes(_jpeg(photograph(400, 300)))
    for index in range(20):
        _sample(tmp_path / "a.jpg", 64, fast=True, index=index)
    assert min(len(pixels) for pixels in decoded) < 200
    assert any(pixels.shape[1] == 200 for pixels in decoded), "large cuts are decoded at half the size"


@pytest.mark.parametrize(("side", "eighths"), [(1792, 1), (896, 2), (895, 4), (448, 4), (447, 8), (100, 8)])
def test_the_decoded_size_never_has_fewer_pixels_than_the_sample(side, eighths):
    assert eighths_for(side, side + 50, 224) == eighths == eighths_for(side + 50, side, 224)


def _many_scans() -> bytes:
    """A sequential file with a scan for each colour, which cannot be cut: written by hand from one with one scan."""
    data = bytearray(_jpeg(photograph(64, 48)))
    at = data.index(b"\xff\xda")
    data[at + 4] = 1
    return bytes(data)


def test_only_files_whose_rows_follow_one_another_are_cut():
    progressive = plain_jpeg(_jpeg(photograph(64, 48), progressive=True))
    assert progressive is not None and len(progressive.decode(rows=8)) == 48
    sequential = plain_jpeg(_jpeg(photograph(64, 48)))
    assert sequential is not None and len(sequential.decode(rows=8)) < 48
    scans = plain_jpeg(_many_scans())
    assert scans is not None and not scans._one_scan


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xd8\xff\xd9",
        b"\xff\xd8" + b"\xff" * 40,
        b"\xff\xd8\xff\xda" + b"\0" * 20 + b"\xff\xd9",
        _jpeg(photograph(64, 48).convert("L")),
        _jpeg(photograph(64, 48).convert("CMYK")),
        _jpeg(photograph(64, 48))[:-40],
        _jpeg(photograph(64, 48)) + b"more",
        _jpeg(photograph(64, 48)).replace(b"\xff\xc0\x00\x11\x08", b"\xff\xc0\x00\x11\x0c"),
        _jpeg(photograph(64, 48)).replace(b"\xff\xc0\x00\x11\x08\x00\x30", b"\xff\xc0\x00\x11\x08\x00\x00"),
        _jpeg(photograph(64, 48)).replace(b"\xff\xc0", b"\xff\xc9"),
    ],
    ids=[
        "empty",
        "bare",
        "fill",
        "no frame",
        "grey",
        "CMYK",
        "truncated",
        "more",
        "12 bits",
        "no height",
        "arithmetic",
    ],
)
def test_what_is_not_plain_is_left_to_pillow(data):
    assert plain_jpeg(data) is None


def test_a_very_large_image_is_left_to_pillow(monkeypatch):
    data = _jpeg(photograph(64, 48))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    assert plain_jpeg(data) is None


def test_a_file_that_the_fast_decoder_refuses_is_read_by_pillow(tmp_path: Path, monkeypatch):
    path = tmp_path / "a.jpg"
    path.write_bytes(_jpeg(photograph(64, 48)))
    expected = _sample(path, 24, fast=False)

    def refuse(*_, **__):
        raise ValueError("unsupported")

    monkeypatch.setattr(jpeg.PlainJpeg, "decode", refuse)
    assert np.array_equal(_sample(path, 24, fast=True), expected)


def test_without_the_libraries_pillow_does_everything(tmp_path: Path, monkeypatch):
    path = tmp_path / "a.jpg"
    path.write_bytes(_jpeg(photograph(64, 48)))
    expected = _sample(path, 24, fast=False)
    monkeypatch.setattr(jpeg, "simplejpeg", None)
    monkeypatch.setattr(resample, "Resizer", None)
    assert np.array_equal(_sample(path, 24, fast=True), expected)


def test_a_jpeg_with_another_ending_and_a_png_with_this_one_are_read(tmp_path: Path):
    (tmp_path / "a.png").write_bytes(_jpeg(photograph(64, 48)))
    photograph(64, 48).save(tmp_path / "b.png")
    (tmp_path / "b.png").rename(tmp_path / "b.jpg")
    assert decode.JPEG_SUFFIXES == (".jpg", ".jpeg")
    for name in ("a.png", "b.jpg"):
        assert np.array_equal(_sample(tmp_path / name, 24, fast=True), _sample(tmp_path / name, 24, fast=False))
