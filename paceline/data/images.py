"""Images in class folders, here or elsewhere: `images:PATH?size=224&classes=cat,dog&labels=names.json`."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from paceline.data.cache import Progress
from paceline.data.dataset import Dataset, Reader
from paceline.data.image_folder import FolderPart, class_folders, find_images
from paceline.data.image_labels import read_labels, readable_names
from paceline.data.image_reader import ImageReader
from paceline.data.normalise import IMAGENET
from paceline.data.remote_folder import is_remote, local_copy, synchronise
from paceline.data.ring import PathTable
from paceline.data.source import Source, split_items, without_count
from paceline.errors import DataError, nearest

_DEFAULT_SIZE = 224


@dataclass(frozen=True, eq=False)
class ImageFiles:
    """A part of the images: `Files` that an `ImageReader` decodes."""

    paths: PathTable
    labels: Tensor
    size: int
    cache: Path
    """The file for decoded images, used where `cache_bytes` allows any."""
    cache_bytes: int = 0

    def __len__(self) -> int:
        return len(self.paths)

    def first(self, count: int) -> ImageFiles:
        return replace(self, paths=self.paths.first(count), labels=self.labels[:count])

    def open(self, *, batch: int, seed: int, training: bool, depth: int, readers: int) -> Reader:
        return ImageReader(
            self.paths,
            self.labels,
            batch=batch,
            size=self.size,
            seed=seed,
            training=training,
            depth=depth,
            readers=readers,
            cache=self.cache if self.cache_bytes else None,
            cache_bytes=self.cache_bytes,
        )


def load(source: Source, cache: Path, progress: Progress | None) -> Dataset:
    source.allow("size", "classes", "labels", "sync")
    size = source.whole("size", _DEFAULT_SIZE)
    root = _local_root(source, cache, progress)
    folders = class_folders(root)
    labels = read_labels(_labels_file(source, root)) if "labels" in source.options else {}
    folders = _chosen(source, folders, labels)
    train, test = find_images(root, folders)
    if not len(test.paths):
        raise DataError(f"data {source.text!r}: no class has two images, so none is left for testing; add images")
    key = hashlib.sha256(f"{size} ".encode() + os.fsencode(root)).hexdigest()[:16]
    kept = cache / "decoded" / f"{root.name}-{size}-{key}.sqlite"
    return Dataset(
        name=without_count(source),
        kind="image",
        shape=(3, size, size),
        classes=readable_names(folders, labels),
        train=_files(train, size, kept),
        test=_files(test, size, kept),
        prepare=IMAGENET,
    )


def _files(part: FolderPart, size: int, kept: Path) -> ImageFiles:
    return ImageFiles(part.paths, torch.from_numpy(part.labels), size, kept)


def keep_decoded(dataset: Dataset, limit_bytes: int) -> Dataset:
    """The same images, kept on disk once they are decoded."""
    train, test = dataset.train, dataset.test
    if not isinstance(train, ImageFiles) or not isinstance(test, ImageFiles):
        raise DataError(f"decoded_cache_gb is for folders of images (images:PATH), not for data {dataset.name!r}")
    return replace(dataset, train=replace(train, cache_bytes=limit_bytes), test=replace(test, cache_bytes=limit_bytes))


def _local_root(source: Source, cache: Path, progress: Progress | None) -> Path:
    place = source.needed_argument("path")
    sync = source.options.get("sync", "yes")
    if sync not in ("yes", "no"):
        raise DataError(f"data {source.text!r}: sync={sync} must be yes or no")
    if is_remote(place):
        copy = local_copy(place, cache) if sync == "no" else None
        return copy or synchronise(place, cache, progress)
    root = Path(place).expanduser()
    if not root.is_dir():
        raise DataError(f"data {source.text!r}: {root} is not a folder; give a folder of class folders")
    return root.absolute()


def _labels_file(source: Source, root: Path) -> Path:
    """Beside the images, else from the current folder."""
    given = Path(source.options["labels"]).expanduser()
    return root / given if (root / given).is_file() else given


def _chosen(source: Source, folders: list[str], labels: dict[str, str]) -> list[str]:
    """The folders that `classes=` names, by folder or by readable name, in their sorted order."""
    if "classes" not in source.options:
        return folders
    by_name = {labels.get(folder, folder): folder for folder in folders}
    by_name |= {folder: folder for folder in folders}
    chosen = set()
    for name in split_items(source.options["classes"]):
        if name not in by_name:
            raise DataError(f"data {source.text!r}: no class {name!r}; {nearest(name, by_name)}")
        chosen.add(by_name[name])
    if not chosen:
        raise DataError(f"data {source.text!r}: classes= names none; give at least one")
    return [folder for folder in folders if folder in chosen]
