"""Images are decoded ahead in processes that are replaced when they die and leave nothing behind."""

import gc
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from paceline import data
from paceline.errors import DataError


def _open(photos, **changes):
    options = {"batch": 8, "seed": 1, "training": True, "depth": 2, "readers": 2} | changes
    return photos.train.open(**options)


def _epoch(reader, count: int, epoch: int = 0):
    """All samples in batches of 8, two in flight."""
    batches = list(torch.arange(count).split(8))
    received = []
    for number, indices in enumerate(batches):
        reader.request(indices, epoch)
        if number:
            received.append([part.clone() for part in reader.receive()])
    received.append([part.clone() for part in reader.receive()])
    return torch.cat([x for x, _ in received]), torch.cat([y for _, y in received])


def _gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


def _wait_until_gone(pids) -> bool:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if all(_gone(pid) for pid in pids):
            return True
        time.sleep(0.02)
    return False


@pytest.fixture
def photos(make_images):
    return data.load(f"images:{make_images(count=12)}?size=24")


def test_batches_come_in_order_with_their_classes(photos):
    reader = _open(photos)
    x, y = _epoch(reader, len(photos.train))
    reader.close()
    assert x.shape == (22, 3, 24, 24) and x.dtype == torch.uint8
    assert y.tolist() == photos.train.labels.tolist()
    assert x.float().mean((2, 3)).argmax(1).tolist() == y.tolist(), "the images' colours are their classes"


def test_samples_repeat_bit_for_bit_however_they_are_read(photos):
    seen = []
    for readers in (1, 3):
        reader = _open(photos, readers=readers)
        seen.append(_epoch(reader, 22, epoch=5)[0])
        other = _epoch(reader, 22, epoch=6)[0]
        reader.close()
    assert torch.equal(*seen) and not torch.equal(seen[0], other)
    reader = _open(photos)
    reader.request(torch.tensor([21, 3]), 5)
    assert torch.equal(reader.receive()[0], seen[0][[21, 3]])
    reader.close()


def test_testing_takes_the_centre_in_every_epoch(photos):
    reader = photos.test.open(batch=2, seed=1, training=False, depth=1, readers=1)
    seen = []
    for epoch in (0, 1):
        reader.request(torch.arange(2), epoch)
        seen.append(reader.receive()[0].clone())
    reader.close()
    assert torch.equal(*seen)


def test_a_batch_stays_as_it_is_until_the_next_is_received(photos):
    reader = _open(photos)
    reader.request(torch.arange(8), 0)
    reader.request(torch.arange(8, 16), 0)
    x, _ = reader.receive()
    before = x.clone()
    reader.request(torch.arange(16, 22), 0)
    time.sleep(0.3)
    assert torch.equal(x, before)
    reader.close()


def test_killed_decoders_are_replaced_and_their_images_decoded_again(photos):
    reader = _open(photos)
    expected, _ = _epoch(reader, 22)
    for _ in range(3):
        first = reader.process_ids
        reader.request(torch.arange(8), 0)
        for pid in first:
            os.kill(pid, signal.SIGKILL)
        reader.request(torch.arange(8, 16), 0)
        got = torch.cat([reader.receive()[0].clone(), reader.receive()[0].clone()])
        assert torch.equal(got, expected[:16])
        assert not set(first) & set(reader.process_ids)
    reader.close()


def test_an_image_that_always_ends_the_decoder_is_reported(photos, monkeypatch):
    reader = _open(photos, readers=1)
    decoder = reader._decoders[0]
    started = decoder._started

    def dies():
        process = started()
        process.kill()
        return process

    monkeypatch.setattr(decoder, "_started", dies)
    os.kill(reader.process_ids[0], signal.SIGKILL)
    reader.request(torch.arange(8), 0)
    with pytest.raises(DataError, match=r"000\.png or one of .* ended the decoder 3 times"):
        reader.receive()
    reader.close()


@pytest.mark.parametrize("damage", ["truncated", "not an image", "missing"])
def test_an_unreadable_image_is_named(make_images, damage):
    root = make_images()
    photos = data.load(f"images:{root}?size=24")
    broken = root / "dog" / "001.jpg"
    if damage == "missing":
        broken.unlink()
    else:
        broken.write_bytes(broken.read_bytes()[:400] if damage == "truncated" else b"text")
    reader = _open(photos)
    with pytest.raises(DataError, match=r"dog/001\.jpg cannot be read") as error:
        _epoch(reader, 22)
    reader.close()
    assert "\n" not in str(error.value)


def test_closing_leaves_no_process_and_no_descriptor(photos):
    _open(photos).close()
    gc.collect()
    before = len(list(Path("/proc/self/fd").iterdir()))
    reader = _open(photos)
    pids = reader.process_ids
    reader.request(torch.arange(8), 0)
    x, _ = reader.receive()
    reader.request(torch.arange(8), 1)
    reader.close()
    reader.close()
    assert all(not Path(f"/proc/{pid}").exists() for pid in pids)
    del reader, x
    gc.collect()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_forgotten_reader_leaves_nothing_either(photos):
    gc.collect()
    before = len(list(Path("/proc/self/fd").iterdir()))
    reader = _open(photos)
    pids = reader.process_ids
    reader.request(torch.arange(8), 0)
    del reader
    gc.collect()
    assert all(not Path(f"/proc/{pid}").exists() for pid in pids)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_decoders_end_when_the_trainer_is_killed(photos, make_images, tmp_path: Path):
    script = (
        "import sys, time, torch\n"
        "from paceline import data\n"
        "photos = data.load(sys.argv[1])\n"
        "reader = photos.train.open(batch=8, seed=1, training=True, depth=2, readers=2)\n"
        "reader.request(torch.arange(8), 0)\n"
        "reader.receive()\n"
        "reader.request(torch.arange(8), 0)\n"
        "print(*reader.process_ids, flush=True)\n"
        "time.sleep(60)\n"
    )
    trainer = subprocess.Popen(
        [sys.executable, "-c", script, f"images:{tmp_path / 'images'}"], stdout=subprocess.PIPE, text=True
    )
    assert trainer.stdout is not None
    pids = [int(pid) for pid in trainer.stdout.readline().split()]
    assert len(pids) == 2 and not any(_gone(pid) for pid in pids)
    trainer.kill()
    trainer.wait()
    trainer.stdout.close()
    assert _wait_until_gone(pids)


def test_decoders_do_not_import_torch(photos):
    reader = _open(photos, readers=1)
    _epoch(reader, 8)
    assert "libtorch" not in Path(f"/proc/{reader.process_ids[0]}/maps").read_text()
    reader.close()


def test_a_count_keeps_the_first_images(photos):
    few = photos.first(5)
    reader = _open(few)
    x, y = _epoch(reader, 5)
    reader.close()
    reader = _open(photos)
    assert torch.equal(x, _epoch(reader, 22)[0][:5]) and len(y) == 5
    reader.close()
