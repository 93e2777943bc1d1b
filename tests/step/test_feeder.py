"""Feeders: wherever the samples are, the batches are the same, and nothing is left running."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from paceline import data
from paceline.data.dataset import Arrays, Dataset, Files
from paceline.errors import DataError
from paceline.step import feeder as feeders
from paceline.step.build import assemble, load_data
from paceline.step.feeder import Feeder, FileFeeder, HostFeeder, ResidentFeeder, first_batch, make_feeder
from paceline.step.make import make_step
from paceline.step.order import Order
from paceline.step.tally import Tally
from paceline.workload import resolve
from tests.step.small_parts import rows

CPU = torch.device("cpu")
Batch = tuple[torch.Tensor, torch.Tensor]


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Three classes of small images, told apart by colour."""
    root = tmp_path / "photos"
    for number, name in enumerate(("ant", "bee", "cat")):
        (root / name).mkdir(parents=True)
        for i in range(8):
            noise = np.random.default_rng((number, i)).integers(0, 60, (24, 24, 3), dtype=np.uint8)
            noise[:, :, number] += 190
            Image.fromarray(noise).save(root / name / f"{i}.png")
    return root


def feeder_of(dataset: Dataset, batch: int = 5, *, training: bool = True, seed: int = 3) -> Feeder:
    part = dataset.train if training else dataset.test
    return make_feeder(dataset, Order(len(part), batch, seed), CPU, torch.float32, training=training, readers=2)


def same(a: list[Batch], b: list[Batch]) -> bool:
    return len(a) == len(b) and all(
        torch.equal(p, q) for one, other in zip(a, b, strict=True) for p, q in zip(one, other, strict=True)
    )


def memory(monkeypatch: pytest.MonkeyPatch, size_bytes: int) -> None:
    monkeypatch.setattr(feeders, "device_free_bytes", lambda device: size_bytes)


def read_whole(files: Files, *, training: bool) -> Arrays:
    """All samples of a part in memory, as its reader gives them in epoch 0."""
    count = len(files)
    reader = files.open(batch=count, seed=3, training=training, depth=1, readers=2)
    reader.request(torch.arange(count), 0)
    x, y = (tensor.clone() for tensor in reader.receive())
    reader.close()
    return Arrays(x, y)


def test_resident_and_host_give_the_same_batches(monkeypatch):
    dataset = data.load("digits:203")
    size_bytes = dataset.train.size_bytes  # type: ignore[union-attr]
    found: dict[str, list[Batch]] = {}
    for name, room in (("prepared", 1 << 40), ("raw", int(size_bytes / 0.4) + 8), ("host", 0)):
        memory(monkeypatch, room)
        feeder = feeder_of(dataset, 50)
        assert isinstance(feeder, HostFeeder if name == "host" else ResidentFeeder)
        found[name] = [batch for epoch in range(3) for batch in feeder.batches(epoch)]
        feeder.close()
    assert same(found["prepared"], found["raw"]) and same(found["prepared"], found["host"])
    assert [len(y) for _, y in found["host"]] == 3 * [50, 50, 50, 50, 3]


def test_files_give_the_batches_that_arrays_of_the_same_samples_would(photos):
    dataset = data.load(f"images:{photos}?size=16")
    held = replace(dataset, train=read_whole(dataset.train, training=True))  # type: ignore[arg-type]
    feeder = feeder_of(dataset)
    assert isinstance(feeder, FileFeeder)
    assert same(list(feeder.batches(0)), list(feeder_of(held).batches(0)))
    feeder.close()


@pytest.mark.parametrize("kind", ["resident", "host", "files"])
@pytest.mark.parametrize("first", [0, 2, 4, 5])
def test_an_epoch_can_begin_in_its_middle(monkeypatch, photos, kind, first):
    memory(monkeypatch, 0 if kind == "host" else 1 << 40)
    feeder = feeder_of(data.load(f"images:{photos}?size=16") if kind == "files" else rows(21))
    whole = list(feeder.batches(1))
    assert len(whole) == 5
    assert same(list(feeder.batches(1, first)), whole[first:])
    feeder.close()


def test_mapped_arrays_too_large_for_memory_are_fetched_ahead(monkeypatch, tmp_path):
    for part, count in (("train", 30), ("test", 7)):
        np.save(tmp_path / f"x_{part}.npy", np.random.default_rng(count).normal(size=(count, 4)).astype(np.float32))
        np.save(tmp_path / f"y_{part}.npy", np.arange(count) % 3)
    dataset = data.load(f"arrays:{tmp_path}")
    expected = list(feeder_of(dataset, 8).batches(0))
    memory(monkeypatch, 100)
    feeder = feeder_of(dataset, 8)
    assert isinstance(feeder, HostFeeder) and feeder.where == "30 samples on the host, fetched ahead"
    assert same(list(feeder.batches(0)), expected)


def test_an_image_that_cannot_be_read_is_named(photos):
    (photos / "bee" / "2.png").write_bytes(b"no image")
    feeder = feeder_of(data.load(f"images:{photos}?size=16"))
    with pytest.raises(DataError, match=r"bee/2\.png cannot be read"):
        list(feeder.batches(0))
    feeder.close()
    assert not left_running(feeder)


def process_ids(feeder: Feeder) -> tuple[int, ...]:
    reader = feeder.reader  # type: ignore[attr-defined]
    return reader.process_ids if reader is not None else ()


def alive(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    return True


def left_running(feeder: Feeder) -> list[object]:
    return [*prefetching(), *filter(alive, process_ids(feeder))]


def prefetching() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "paceline-prefetch"]


def take(feeder: Feeder, epoch: int) -> list[Batch]:
    """An epoch as steps take it: as many batches as there are, and not one question more."""
    batches = feeder.batches(epoch)
    return [next(batches) for _ in range(feeder.order.batches)]


def test_the_reader_is_kept_from_epoch_to_epoch(photos):
    feeder = feeder_of(data.load(f"images:{photos}?size=16"))
    take(feeder, 0)
    started = process_ids(feeder)
    assert len(started) == 2
    again = take(feeder, 1)
    assert process_ids(feeder) == started, "starting decoders anew costs a second an epoch"
    feeder.close()
    assert not any(map(alive, started))
    other = feeder_of(data.load(f"images:{photos}?size=16"))
    assert same(take(other, 1), again)
    other.close()


def test_an_abandoned_epoch_leaves_no_old_batches_behind(photos):
    dataset = data.load(f"images:{photos}?size=16")
    feeder = feeder_of(dataset)
    batches = feeder.batches(0)
    next(batches)
    abandoned = process_ids(feeder)
    batches.close()
    found = list(feeder.batches(1))
    fresh = feeder_of(dataset)
    assert same(found, list(fresh.batches(1)))
    # Decoders that had answered everything before the epoch was abandoned are used again.
    assert process_ids(feeder) == abandoned or not any(map(alive, abandoned))
    for each in (feeder, fresh):
        running = process_ids(each)
        each.close()
        assert not any(map(alive, running)) and not left_running(each)


def test_the_first_batch_leaves_no_thread(monkeypatch):
    memory(monkeypatch, 0)
    feeder = feeder_of(rows(21))
    x, y = first_batch(feeder)
    assert same([(x, y)], [next(feeder.batches(0))]) and not prefetching()


@pytest.mark.gpu
@pytest.mark.parametrize("network", ["mlp", "lenet5"])
def test_a_graph_trains_on_the_labels_of_data_that_stream_in(monkeypatch, network):
    def losses(kind: str) -> list[float]:
        workload = resolve(network, {"data": "digits:210", "batch": 50, "epochs": 3})
        parts = assemble(workload, load_data(workload), torch.device("cuda"))
        step, _ = make_step(parts, kind)
        found = []
        for epoch in range(3):
            tally = Tally(1)
            step.begin(epoch)
            step.advance(parts.updates_per_epoch, tally)
            found.append(tally.read().loss)
        step.close()
        return found

    memory(monkeypatch, 0)
    assert losses("graph") == pytest.approx(losses("flat"), rel=1e-4)
