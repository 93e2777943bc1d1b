"""Data that Ray Data reads: the same batches whoever reads them, whatever the blocks are and whoever dies."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import paceline
from paceline.data.given import dataset_from
from paceline.errors import DataError
from paceline.strategy.presets import find_strategy
from paceline.testing import Fault
from paceline.training.drivers.ray import launcher
from tests.contract.drivers import train
from tests.contract.small_training import workload
from tests.training.drivers.local.small import parameters

pytestmark = [pytest.mark.slow, pytest.mark.serial, pytest.mark.usefixtures("ray_cluster")]

SAMPLES, BATCHES = 1000, -(-900 // 16)


@pytest.fixture
def files(tmp_path):
    """A folder of parquet files: five features, of which the sign of the sum is the class, and a column of text."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    x = np.random.default_rng(0).normal(size=(SAMPLES, 5))
    folder = tmp_path / "files"
    folder.mkdir()
    for part in range(4):
        here = slice(part * 250, part * 250 + 250)
        columns = {f"feature {number}": x[here, number] for number in range(5)}
        columns |= {"class": (x[here].sum(1) > 0).astype(np.int64), "name": ["a"] * 250}
        pq.write_table(pa.table(columns), folder / f"{part}.parquet", row_group_size=50)
    return folder


def made(data, **changes):
    settings = {"epochs": 2, "batch": 16, "lr": 0.1, **changes}
    return workload(data=data, **settings)


def test_workers_of_a_cluster_find_the_bits_of_a_run_in_one_process_whoever_dies(files, tmp_path):
    data = f"ray-data:{files}?target=class&drop=name"
    whole = train("virtual", made(data), find_strategy("sync"), 2, tmp_path / "whole")
    kills = (Fault("kill", 20, 1), *(Fault("slow", worker=worker, seconds=0.01) for worker in range(2)))
    found = train("ray", made(data), find_strategy("sync"), 2, tmp_path / "run", faults=kills)
    assert found.distribution.ledger.applied_by_epoch == (BATCHES, BATCHES)
    assert [fault.what for fault in found.distribution.faults] == ["died"]
    assert torch.equal(found.parameters, whole.parameters)
    assert found.accuracy > 0.8

    once = launcher.run(made(data, epochs=1), "sync", workers=2, out=tmp_path / "part")
    assert "in blocks of Ray Data" in once.data
    launcher.resume(tmp_path / "part", changes={"epochs": 2})
    assert torch.equal(parameters(tmp_path / "part"), whole.parameters)


def test_the_order_does_not_depend_on_the_blocks(tmp_path):
    import ray

    x = np.random.default_rng(1).normal(size=(200, 4, 2)).astype(np.float32)
    given = {"x": x, "y": (x.sum((1, 2)) > 0).astype(np.int64)}
    found = []
    for blocks in (1, 7):
        rows = [{"x": one, "y": int(label)} for one, label in zip(given["x"], given["y"], strict=True)]
        data = ray.data.from_items(rows, override_num_blocks=blocks)
        dataset = dataset_from("object:data", data)
        assert len(dataset.train.dataset.counts) == blocks
        assert dataset.shape == (4, 2) and dataset.classes == ("0", "1")
        assert (len(dataset.train), len(dataset.test)) == (180, 20)
        chosen = torch.tensor([179, 3, 100, 50])
        inputs, targets = dataset.train.read(chosen)
        assert np.array_equal(inputs.numpy(), x[chosen]) and targets.tolist() == given["y"][chosen].tolist()
        found.append(data)
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(8, 2))
    run = paceline.train(
        network, "downpour", workers=2, data=(found[1], found[0]),
        batch=10, epochs=1, device="cpu", driver="ray", out=tmp_path / "run",
    )  # fmt: skip
    assert run.distribution.ledger.applied_by_epoch == (20,)


def test_mistakes_are_named_on_one_line(files):
    for options, message in [
        ("", r"has the columns .*; it needs a target, named labels, label, .* or with \?target=COLUMN"),
        ("?target=klass", r"no column 'klass'; did you mean class"),
        ("?target=class", r"column 'name' is not numbers of one shape; convert it or leave it out"),
        ("?target=name&drop=class", "column 'name' is not numbers"),
        ("?size=3", "unknown option 'size'"),
    ]:
        with pytest.raises(DataError, match=message):
            paceline.load_dataset(f"ray-data:{files}{options}")
    with pytest.raises(DataError, match=r"cannot read .*nowhere"):
        launcher.run(made(f"ray-data:{files}-nowhere?target=y"), "sync", workers=2)
    with pytest.raises(DataError, match=r"use `driver='ray'`, or train in one process"):
        paceline.train("dnn", "sync", workers=2, data=f"ray-data:{files}?target=class&drop=name", driver="local")
