"""What can be loaded by name: the module of each source, and the list that is shown to users."""

from __future__ import annotations

import importlib
import pydoc_data
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MODULES = {
    "digits": "paceline.data.digits",
    "mnist": "paceline.data.mnist",
    "fashion-mnist": "paceline.data.mnist",
    "cifar10": "paceline.data.cifar10",
    "images": "paceline.data.images",
    "text": "paceline.data.text",
    "synthetic": "paceline.data.synthetic",
    "tokens": "paceline.data.tokens",
    "adding": "paceline.data.adding",
    "logic": "paceline.data.logic",
    "arrays": "paceline.data.arrays",
    "csv": "paceline.data.table",
    "parquet": "paceline.data.table",
    "ray-data": "paceline.data.ray_data",
}


@dataclass(frozen=True)
class Entry:
    """A line of the catalogue. What depends on the argument of a source is None."""

    name: str
    description: str
    samples: tuple[int, int] | None = None
    """For training and for testing."""
    shape: tuple[int, ...] | None = None
    classes: tuple[str, ...] | None = None
    place: Path | None = None
    size_bytes: int | None = None


def dataset_module(name: str) -> Any:
    return importlib.import_module(MODULES[name])


def entries(cache: Path) -> list[Entry]:
    from paceline.data.well_known import WELL_KNOWN

    published = [
        Entry(
            item.name,
            item.description,
            item.samples,
            item.shape,
            item.classes,
            dataset_path(item.name, cache),
            item.size_bytes,
        )
        for item in WELL_KNOWN.values()
    ]
    return [_digits(), *published, _text(), *_FORMS]


def dataset_path(name: str, cache: Path) -> Path | None:
    """Where a data set is now: a folder of the cache, or the file of a package that brings it along."""
    from paceline.data.published import present
    from paceline.data.well_known import WELL_KNOWN

    if name in WELL_KNOWN:
        found = present(WELL_KNOWN[name], cache)
        return found[0].parent if found else None
    if name == "digits":
        from paceline.data.digits import bundled_file

        return bundled_file()
    if name == "text":
        return Path(pydoc_data.__path__[0]) / "topics.py"
    return None


def _digits() -> Entry:
    place = dataset_path("digits", Path())
    size_bytes = place.stat().st_size if place else None
    digits = tuple("0123456789")
    return Entry("digits", "small handwritten digits", (1437, 360), (1, 8, 8), digits, place, size_bytes)


def _text() -> Entry:
    place = dataset_path("text", Path())
    size_bytes = place.stat().st_size if place and place.is_file() else None
    return Entry("text", "English text, next character", shape=(64,), place=place, size_bytes=size_bytes)


_FORMS = (
    Entry("text:PATH", "your UTF-8 file, next character"),
    Entry("images:PATH", "your folders of images, one per class; PATH may be a web address"),
    Entry("arrays:PATH", "your x_train.npy, y_train.npy, x_test.npy, y_test.npy"),
    Entry("csv:PATH?target=COLUMN", "your table, a row per sample; without a target the last column"),
    Entry("parquet:PATH?target=COLUMN", "the same from a parquet file"),
    Entry("ray-data:PATH?target=COLUMN", "parquet files read by Ray Data, for data too large for a node"),
    Entry("synthetic:SHAPE/CLASSES", "noise with a faint pattern, for example synthetic:3x224x224/1000"),
    Entry("tokens:LENGTH/VOCABULARY", "sequences of tokens, next token, for example tokens:512/32000"),
    Entry("adding:LENGTH", "a sequence of digits, two of them marked; the class is their sum"),
    Entry("logic:DEPTH", "trees of true, false, not, and, or, xor; the class is their value"),
    Entry("MODULE:NAME", "your Dataset, DataLoader, arrays or dictionary, or a function that returns them"),
)
