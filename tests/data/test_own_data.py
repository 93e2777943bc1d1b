"""Arrays on disk and functions of the user's own become data sets."""

from pathlib import Path

import numpy as np
import pytest
import torch

from paceline import data
from paceline.data import Arrays, Dataset
from paceline.errors import DataError


def _save(folder: Path, x, y):
    np.save(folder / "x_train.npy", x)
    np.save(folder / "y_train.npy", y)
    np.save(folder / "x_test.npy", x[:2])
    np.save(folder / "y_test.npy", y[:2])


def test_arrays_are_mapped_and_prepared(tmp_path: Path):
    pixels = np.full((6, 3, 4, 4), 255, dtype=np.uint8)
    _save(tmp_path, pixels, np.array([0, 1, 2, 0, 1, 2], dtype=np.int32))
    arrays = data.load(f"arrays:{tmp_path}:4")
    assert (arrays.kind, arrays.shape, len(arrays.classes), len(arrays.train)) == ("image", (3, 4, 4), 3, 4)
    x, y = arrays.prepare(arrays.train.x, arrays.train.y)
    assert x.dtype == torch.float32 and float(x.max()) == 1 and y.dtype == torch.int64
    arrays.train.x[0] = 0
    assert np.load(tmp_path / "x_train.npy").min() == 255, "the file must stay as it is"


def test_targets_that_are_numbers_have_no_classes(tmp_path: Path):
    _save(tmp_path, np.zeros((4, 5)), np.zeros((4, 1)))
    arrays = data.load(f"arrays:{tmp_path}")
    x, y = arrays.prepare(arrays.train.x, arrays.train.y)
    assert (arrays.kind, arrays.classes, x.dtype, y.dtype) == ("table", (), torch.float32, torch.float32)


def test_unsuitable_arrays_are_refused(tmp_path: Path):
    with pytest.raises(DataError, match=r"x_train\.npy is missing"):
        data.load(f"arrays:{tmp_path}")
    _save(tmp_path, np.zeros((4, 5)), np.zeros(3, dtype=np.int64))
    with pytest.raises(DataError, match="4 samples"):
        data.load(f"arrays:{tmp_path}")
    np.save(tmp_path / "y_train.npy", np.array([object()] * 4), allow_pickle=True)
    with pytest.raises(DataError, match=r"y_train\.npy cannot be read"):
        data.load(f"arrays:{tmp_path}")
    (tmp_path / "x_train.npy").write_bytes(b"\x93NUMPY")
    with pytest.raises(DataError, match=r"x_train\.npy cannot be read"):
        data.load(f"arrays:{tmp_path}")


def test_a_function_in_the_current_folder_is_found(tmp_path: Path, monkeypatch):
    (tmp_path / "mine_of_test.py").write_text(
        "import torch\ndef make():\n    return torch.rand(9, 3), torch.arange(9), torch.rand(3, 3), torch.arange(3)\n"
    )
    monkeypatch.chdir(tmp_path)
    mine = data.load("mine_of_test:make:5")
    assert (mine.name, len(mine.train), len(mine.test), len(mine.classes)) == ("mine_of_test:make", 5, 3, 9)
    with pytest.raises(DataError, match="has no 'mike'"):
        data.load("mine_of_test:mike")


def test_a_function_may_return_a_data_set_and_be_found_by_the_caller():
    part = Arrays(torch.rand(4, 2), torch.zeros(4, dtype=torch.int64))
    made = Dataset("mine", "table", (2,), ("only",), part, part)
    assert data.load("some:thing", find=lambda name: lambda: made) is made
    with pytest.raises(DataError, match="is of type int"):
        data.load("some:thing", find=lambda name: lambda: 3)


def test_an_error_inside_the_users_module_is_not_hidden(tmp_path: Path, monkeypatch):
    (tmp_path / "needs_more.py").write_text("import a_package_that_is_not_there\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="a_package_that_is_not_there"):
        data.load("needs_more:make")
