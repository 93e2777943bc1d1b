"""Objects that the user gave in Python reach other processes; their large arrays are shared, not copied."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from paceline import held_objects
from paceline.errors import PacelineError
from paceline.held_objects import find_held, holding, load_held, save_held


@pytest.fixture
def sent(tmp_path, monkeypatch):
    """What another process finds for an object, and the file that it was read from."""

    def send(value):
        with holding() as hold:
            name = hold(value, "value")
            save_held(tmp_path / "objects", {"data": name})
        monkeypatch.setattr(held_objects, "_held", {})
        load_held(tmp_path / "objects")
        return find_held(name)

    return send


def test_large_arrays_and_tensors_are_mapped_from_one_file(sent, tmp_path):
    x, y = np.random.rand(200, 100), torch.arange(50_000)
    found_x, found_y, small = sent((x, y, np.arange(3)))
    assert np.array_equal(found_x, x) and torch.equal(found_y, y) and small.tolist() == [0, 1, 2]
    assert (tmp_path / "objects").stat().st_size < 2000, "the arrays are not in the pickle"
    assert (tmp_path / "objects.arrays").stat().st_size >= x.nbytes + y.nbytes


def test_a_process_that_writes_to_a_shared_array_changes_only_its_own(sent, tmp_path):
    found = sent({"x": torch.zeros(20_000)})["x"]
    before = (tmp_path / "objects.arrays").read_bytes()
    found += 1
    assert found.sum() == 20_000 and (tmp_path / "objects.arrays").read_bytes() == before


@pytest.mark.parametrize(
    "value",
    [
        torch.zeros(300, 300).t(),
        torch.zeros(90_000, dtype=torch.bfloat16),
        torch.nn.Linear(300, 300),
        torch.zeros(90_000, requires_grad=True),
        np.zeros((300, 300))[:, ::2],
        np.array(["a"] * 90_000, dtype=object),
    ],
    ids=["transposed", "bfloat16", "module", "with gradient", "strided", "objects"],
)
def test_what_cannot_be_mapped_is_copied(sent, value):
    found = sent(value)
    if isinstance(value, torch.nn.Module):
        value, found = value.weight, found.weight
    assert type(found) is type(value) and found.shape == value.shape and found.dtype == value.dtype


def test_errors_name_an_object_by_its_type_and_leave_other_names_alone():
    assert str(PacelineError("object:Linear fails, and my_object:build does not")) == (
        "Linear fails, and my_object:build does not"
    )
