"""CIFAR-10 from its binary version: records of a label and 3 x 32 x 32 bytes, so no pickle is ever opened."""

from __future__ import annotations

import tarfile
from pathlib import Path

import numpy as np
import torch

from paceline.data.cache import Progress
from paceline.data.dataset import Arrays, Dataset
from paceline.data.derived import Notes, derived
from paceline.data.normalise import CIFAR10 as NORMALISE
from paceline.data.published import obtain
from paceline.data.source import Source
from paceline.data.well_known import CIFAR10
from paceline.errors import DataError

_PIXELS = 3 * 32 * 32
_MEMBERS = (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin")


def load(source: Source, cache: Path, progress: Progress | None) -> Dataset:
    source.no_argument()
    source.allow("path")
    given = Path(source.options["path"]).expanduser() if "path" in source.options else None
    (archive,) = obtain(CIFAR10, cache, given=given, progress=progress)
    made_from = CIFAR10.files[0].sha256
    flat, _ = derived(cache, "cifar10", made_from, lambda target: unpack(archive, target))
    return dataset_of(torch.from_numpy(flat), CIFAR10.samples[0])


def dataset_of(flat: torch.Tensor, training: int) -> Dataset:
    """Takes apart what `unpack` wrote."""
    count = len(flat) // (_PIXELS + 1)
    x = flat[: count * _PIXELS].reshape(count, 3, 32, 32)
    y = flat[count * _PIXELS :].to(torch.int64)
    return Dataset(
        name="cifar10",
        kind="image",
        shape=CIFAR10.shape,
        classes=CIFAR10.classes,
        train=Arrays(x[:training], y[:training]),
        test=Arrays(x[training:], y[training:]),
        prepare=NORMALISE,
    )


def unpack(archive: Path, target: Path) -> Notes:
    """Writes all pixels and then all labels, both in the order of the batches."""
    records = []
    with tarfile.open(archive) as batches:
        for name in _MEMBERS:
            try:
                stream = batches.extractfile(f"cifar-10-batches-bin/{name}")
            except KeyError:
                stream = None
            if stream is None:
                raise DataError(f"{archive} lacks {name}; fetch it again")
            records.append(np.frombuffer(stream.read(), dtype=np.uint8).reshape(-1, _PIXELS + 1))
    table = np.concatenate(records)
    with target.open("wb") as out:
        np.save(out, np.concatenate([table[:, 1:].reshape(-1), table[:, 0]]))
    return {}
