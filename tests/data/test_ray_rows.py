"""Rows in blocks of an object store: any batch by its rows, blocks fetched ahead and let go. Without Ray."""

from __future__ import annotations

import pickle
import threading
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import paceline
from paceline.data import ray_rows
from paceline.data.dataset import Dataset
from paceline.data.given import dataset_of_parts
from paceline.data.ray_rows import RayRows, as_one_batch, check_without_ray, is_ray_data
from paceline.data.samples import Samples
from paceline.errors import DataError
from paceline.step.build import assemble
from paceline.strategy.batch_source import BatchSource
from paceline.workload import Workload
from tests.step.small_parts import CPU

COUNTS = (7, 1, 12, 30)
X, Y = torch.arange(150.0).view(50, 3), torch.arange(50) % 4
BLOCKS = tuple(
    {"x": x.numpy(), "label": y.numpy()} for x, y in zip(X.split(COUNTS), Y.split(COUNTS), strict=True)
)  # fmt: skip


@pytest.fixture
def fetched(monkeypatch):
    """The numbers of the blocks that were fetched, and by which thread."""
    found = []

    def get(block, timeout):
        assert 0 < timeout < 3600
        found.append((next(n for n, each in enumerate(BLOCKS) if each is block), threading.current_thread().name))
        return block

    monkeypatch.setattr(ray_rows, "import_module", lambda name: SimpleNamespace(get=get))
    return found


def rows(**changes) -> RayRows:
    return RayRows("own:data", BLOCKS, COUNTS, "label", **{"stacked": False, **changes})


def test_a_batch_has_the_rows_that_were_asked_for_in_their_order(fetched):
    made = rows()
    chosen = torch.randperm(50, generator=torch.Generator().manual_seed(1))
    x, y = Samples("own:data", made, as_one_batch).read(chosen[:20])
    assert torch.equal(x, X[chosen[:20]]) and torch.equal(y, Y[chosen[:20]])
    x, y = Samples("own:data", made, as_one_batch, indices=range(10, 50)).read(torch.tensor([0, 39, 3]))
    assert torch.equal(x, X[[10, 49, 13]])
    assert len(made) == 50 and made[8][1] == Y[8]


def test_blocks_are_fetched_once_and_old_ones_are_let_go(fetched, monkeypatch):
    monkeypatch.setattr(ray_rows, "KEPT_BLOCKS", 2)
    monkeypatch.setattr(ray_rows, "KEPT_ROWS", 10)
    made = rows()
    for row in (0, 1, 7, 6, 10, 49, 0):
        made[row]
    assert [number for number, _ in fetched] == [0, 1, 2, 3, 0]
    assert len(made._kept) == 2


def test_what_is_expected_is_fetched_by_another_thread(fetched):
    made = rows()
    made.expect([9, 10, 11])
    made.expect([12])
    assert torch.equal(made.__getitems__([9])[0], X[9:10])
    assert [number for number, _ in fetched] == [2]
    assert fetched[0][1] != threading.current_thread().name


def test_a_block_that_cannot_be_fetched_is_named_on_one_line(monkeypatch):
    def lost(block, timeout):
        raise RuntimeError("the object is lost\nmore")

    monkeypatch.setattr(ray_rows, "import_module", lambda name: SimpleNamespace(get=lost))
    made = rows()
    made.expect([0])
    for _ in range(2):
        with pytest.raises(DataError, match=r"data 'own:data' failed on a sample: RuntimeError: the object is lost$"):
            Samples("own:data", made, as_one_batch).read(torch.tensor([0]))


def test_another_process_receives_references_only(fetched):
    made = rows()
    made.classes = ("0", "1", "2", "3")
    made[0]
    again = pickle.loads(pickle.dumps(made))
    assert again.classes == made.classes and again.ends == made.ends and not again._kept


def test_columns_of_numbers_are_a_row_and_several_columns_are_fields(fetched, monkeypatch):
    table = ({"a": np.arange(4), "b": np.ones(4), "label": np.arange(4)},)
    monkeypatch.setattr(ray_rows, "import_module", lambda name: SimpleNamespace(get=lambda block, timeout: block))
    x, y = RayRows("t", table, (4,), "label", stacked=True).__getitems__([2, 0])
    assert x.tolist() == [[2.0, 1.0], [0.0, 1.0]] and y.tolist() == [2, 0] and x.dtype == torch.float32
    x, _ = RayRows("t", table, (4,), "label", stacked=False).__getitems__([2, 0])
    assert set(x) == {"a", "b"} and x["a"].tolist() == [2, 0]
    text = ({"a": np.array(["p", "q"]), "label": np.arange(2)},)
    with pytest.raises(DataError, match=r"column 'a' is not numbers of one shape; convert it or leave it out"):
        RayRows("t", text, (2,), "label", stacked=True).__getitems__([0])


def parts() -> Dataset:
    made = rows()
    made.classes = ("0", "1", "2", "3")
    samples = Samples("own:data", made, as_one_batch)
    return dataset_of_parts("own:data", samples.only(range(40)), samples.only(range(40, 50)))


def test_workers_read_the_batches_of_the_chunked_order_and_expect_those_of_the_next_window(fetched, monkeypatch):
    monkeypatch.setattr(RayRows, "chunk_rows", 2)
    monkeypatch.setattr("paceline.step.build.build_network", lambda *_: torch.nn.Linear(3, 4))
    dataset = parts()
    assert dataset.shape == (3,) and dataset.classes == ("0", "1", "2", "3") and dataset.kind == "table"
    made = assemble(Workload(network="own:network", data="own:data", batch=4, epochs=2), dataset, CPU)
    source = BatchSource(made, full_pass_per_worker=False)
    expected = []
    monkeypatch.setattr(RayRows, "expect", lambda self, rows: expected.append(rows))
    for number in range(10):
        x, y = source.batch(1, number)
        chosen = source.order.permutation(1)[4 * number : 4 * number + 4]
        assert torch.equal(x, X[chosen]) and torch.equal(y, Y[chosen])
    assert source.order.window == 8
    assert expected[0] == source.order.permutation(1)[12:16].tolist()
    assert len(expected) == 10


def test_workers_of_one_machine_have_no_part_in_a_ray_cluster(fetched):
    with pytest.raises(DataError, match=r"is read by Ray, .*: use `driver='ray'`, or train in one process"):
        check_without_ray(parts())
    assert not is_ray_data(X) and not is_ray_data({"x": X})


def test_without_ray_one_line_says_how_to_install_it(monkeypatch):
    def missing(name):
        raise ModuleNotFoundError(f"No module named {name!r}")

    monkeypatch.setattr("paceline.data.ray_data.import_module", missing)
    with pytest.raises(DataError, match=r"needs Ray Data: pip install 'paceline\[ray\]' 'ray\[data\]'$"):
        paceline.load_dataset("ray-data:table?target=y")
