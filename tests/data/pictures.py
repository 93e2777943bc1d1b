"""Pictures like photographs for tests: smooth shapes with some texture."""

from __future__ import annotations

import numpy as np
from PIL import Image


def photograph(width: int, height: int, seed: int = 0) -> Image.Image:
    random = np.random.default_rng(seed)
    picture = random.normal(127.5, 8.0, size=(height, width, 3))
    for cells, strength in ((4, 60.0), (16, 30.0)):
        coarse = random.integers(0, 256, size=(cells, cells, 3), dtype=np.uint8)
        smooth = Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)
        picture += (np.asarray(smooth) - 127.5) * (strength / 64)
    return Image.fromarray(picture.clip(0, 255).astype(np.uint8))
