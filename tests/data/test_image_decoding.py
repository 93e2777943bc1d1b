"""A sample is a pure function of the file, the seed, the epoch and its index."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from paceline.data.decode import Decoder
from paceline.data.views import centre_view, random_view


def _decoded(path: Path, size: int = 32, *, training: bool = False, seed: int = 0, epoch: int = 0, index: int = 0):
    out = np.empty((3, size, size), dtype=np.uint8)
    Decoder(size, seed, training).decode(str(path), epoch, index, out)
    return out


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "I;16"])
def test_every_png_mode_becomes_rgb(tmp_path: Path, mode):
    grey = np.full((40, 50), 200, dtype=np.uint8)
    if mode == "I;16":
        image = Image.fromarray(grey.astype(np.uint16) * 257)
    else:
        image = (
            Image.fromarray(grey).convert("RGB").convert(mode, dither=Image.Dither.NONE, palette=Image.Palette.ADAPTIVE)
        )
    image.save(tmp_path / "a.png")
    pixels = _decoded(tmp_path / "a.png")
    assert np.abs(pixels.astype(int) - (255 if mode == "1" else 200)).max() <= 1


@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK"])
def test_every_jpeg_mode_becomes_rgb(tmp_path: Path, mode):
    Image.new("RGB", (50, 40), (200, 200, 200)).convert(mode).save(tmp_path / "a.jpg", quality=95)
    assert np.abs(_decoded(tmp_path / "a.jpg").astype(int) - 200).max() <= 2


def test_a_transparent_palette_keeps_its_colours(tmp_path: Path):
    image = Image.new("P", (40, 40), 1)
    image.putpalette([0, 0, 0, 10, 120, 240])
    image.save(tmp_path / "a.png", transparency=0)
    assert _decoded(tmp_path / "a.png")[:, 5, 5].tolist() == [10, 120, 240]


def test_samples_repeat_and_differ_by_seed_epoch_and_index(tmp_path: Path):
    noise = np.random.default_rng(0).integers(0, 256, (90, 120, 3), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "a.png")
    first = _decoded(tmp_path / "a.png", training=True)
    assert np.array_equal(first, _decoded(tmp_path / "a.png", training=True))
    for change in ({"seed": 1}, {"epoch": 1}, {"index": 1}):
        assert not np.array_equal(first, _decoded(tmp_path / "a.png", training=True, **change))
    assert np.array_equal(_decoded(tmp_path / "a.png"), _decoded(tmp_path / "a.png", seed=3, epoch=4, index=5))


def test_random_views_stay_inside_and_have_the_promised_sizes():
    views = [random_view(500, 375, 0, 0, index) for index in range(2000)]
    shares, ratios = [], []
    for view in views:
        left, upper, right, lower = view.box
        assert 0 <= left < right <= 500 and 0 <= upper < lower <= 375
        shares.append((right - left) * (lower - upper) / (500 * 375))
        ratios.append((right - left) / (lower - upper))
    assert 0.07 < min(shares) < 0.1 and max(shares) > 0.9
    assert 0.73 < min(ratios) < 0.78 and 1.29 < max(ratios) < 1.36
    assert 0.45 < np.mean([view.mirrored for view in views]) < 0.55


@pytest.mark.parametrize(("width", "height"), [(1, 1), (1, 900), (900, 1), (2000, 3)])
def test_odd_sizes_have_views_too(width, height):
    for index in range(50):
        left, upper, right, lower = random_view(width, height, 0, 0, index).box
        assert 0 <= left < right <= width and 0 <= upper < lower <= height


def test_the_test_view_is_the_centre():
    assert centre_view(512, 256).box == (144, 16, 368, 240)


def test_scaled_jpeg_decoding_changes_little(tmp_path: Path):
    small = np.random.default_rng(0).integers(0, 256, (12, 16, 3), dtype=np.uint8)
    image = Image.fromarray(small).resize((1601, 1203), Image.Resampling.BICUBIC)
    image.save(tmp_path / "a.jpg", quality=95)
    image.save(tmp_path / "a.png")
    for options in ({"training": False}, {"training": True, "index": 2}):
        fast = _decoded(tmp_path / "a.jpg", 64, **options).astype(int)
        full = _decoded(tmp_path / "a.png", 64, **options).astype(int)
        assert np.abs(fast - full).mean() < 2
