"""A folder of pictures that cost as much to decode as photographs: smooth shapes, fine texture, 500 x 375."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
from PIL import Image

SIZE = (500, 375)
CLASSES = 10


def make_folder(root: Path, training: int, *, different: int) -> float:
    """Class folders of `training` pictures, and few for validation; the mean size of a file in bytes.

    Only some pictures are `different`, the others are further names of them: decoding costs the same.
    """
    drawn = root / "drawn"
    drawn.mkdir()
    originals = [_draw(drawn / f"{number}.jpg", number) for number in range(different)]
    for number in range(training):
        _name_again(originals[number % different], root / "train" / _folder(number) / f"{number}.jpg")
    for number in range(CLASSES):
        _name_again(originals[number % different], root / "val" / _folder(number) / f"{number}.jpg")
    return sum(path.stat().st_size for path in originals) / different


def _folder(number: int) -> str:
    return f"class{number % CLASSES}"


def _draw(path: Path, seed: int) -> Path:
    random = np.random.default_rng(seed)
    picture = np.zeros((SIZE[1], SIZE[0], 3), dtype=np.float32)
    for cells, strength in ((4, 60.0), (16, 30.0), (64, 12.0)):
        coarse = random.integers(0, 256, size=(cells * 3 // 4, cells, 3), dtype=np.uint8)
        smooth = np.asarray(Image.fromarray(coarse).resize(SIZE, Image.Resampling.BICUBIC))
        picture += (smooth.astype(np.float32) - 127.5) * (strength / 64)
    picture += random.normal(127.5, 12.0, size=picture.shape).astype(np.float32)
    Image.fromarray(picture.clip(0, 255).astype(np.uint8)).save(path, quality=90)
    return path


def _name_again(original: Path, name: Path) -> None:
    name.parent.mkdir(parents=True, exist_ok=True)
    try:
        name.hardlink_to(original)
    except OSError:  # some file systems have no second names
        shutil.copyfile(original, name)
