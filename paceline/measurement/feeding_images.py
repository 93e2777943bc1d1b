"""Measures image loading for a real network: decoded by other processes, prefetched or on request."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np
import torch
from PIL import Image

from paceline.data.dataset import Files
from paceline.measurement.feeding import IMAGES, WARM_UP, Feeding, feeding_of
from paceline.step.build import assemble, load_data
from paceline.step.feeder import Batches, FileFeeder
from paceline.step.make import make_step
from paceline.step.phase import Batch
from paceline.step.placement import available_cores, choose_device, device_name
from paceline.step.step import Step
from paceline.workload import Workload

CLASSES = 2
DISTINCT_IMAGES = 8
"""The other files are hard links to these."""
PICTURE = (320, 240)


def feed_images(
    workload: Workload, *, ahead: bool, iterations: int = 20, watch: Callable[[int, int], None] | None = None
) -> Feeding:
    """Trains the workload's network for some iterations on generated JPEG images of the size its data have.

    Decoding uses all cores but one, and computing on the CPU one thread, so with two or more cores they do not
    compete.
    """
    count = iterations + WARM_UP
    with tempfile.TemporaryDirectory(prefix="paceline-images-") as folder:
        size = _size(workload.data)
        make_images(Path(folder), workload.batch * (count + 1))
        workload = replace(workload, data=f"images:{folder}?size={size}", threads=workload.threads or 1)
        device, _ = choose_device(workload.device)
        parts = assemble(workload, load_data(workload), device)
        step, _ = make_step(parts, "plain")
        feeder = parts.feeder
        assert isinstance(feeder, FileFeeder)
        feeder.readers = max(1, available_cores() - 1)
        try:
            with closing(_one_by_one(feeder, count)) as batches:  # the first batch includes the start of the readers
                load_s, batch = _loading(batches)
            compute_s = _computing(step, batch, min(10, iterations))
            batches = feeder.batches(0) if ahead else _one_by_one(feeder, count)
            with closing(batches):
                found = _fed(step, batches, count, watch)
        finally:
            step.close()
    made = feeding_of(IMAGES, 1, ahead, load_s, compute_s, [found])
    more = {
        "network": workload.network, "batch": str(workload.batch), "size": str(size), "device": device_name(device),
        "readers": str(feeder.readers),
    }  # fmt: skip
    return replace(made, conditions={**made.conditions, **more})


def _size(data: str) -> int:
    """The image size in data such as `synthetic:3x32x32/10`."""
    sizes = data.partition(":")[2].partition("/")[0].split("x")
    return int(sizes[-1]) if sizes[-1].isdigit() else 32


def make_images(folder: Path, count: int) -> None:
    """Writes JPEG files of two classes, at least `count` of them for training."""
    generator = np.random.default_rng(0)
    width, height = PICTURE
    made = []
    for number in range(DISTINCT_IMAGES):
        coarse = generator.integers(0, 256, (height // 20, width // 20, 3), dtype=np.uint8)
        path = folder / f".picture-{number}.jpg"
        Image.fromarray(coarse).resize(PICTURE, Image.Resampling.BICUBIC).save(path, quality=90)
        made.append(path)
    for number in range(CLASSES):
        (folder / f"class-{number}").mkdir()
    for number in range(count * 10 // 9 + 10 * CLASSES):  # a tenth is held out for testing
        target = folder / f"class-{number % CLASSES}" / f"{number:06d}.jpg"
        target.hardlink_to(made[number % DISTINCT_IMAGES])


def _one_by_one(feeder: FileFeeder, count: int) -> Batches:
    """Decodes each batch on request, with the same number of processes."""
    files: Files = feeder.files
    reader = files.open(
        batch=feeder.order.batch, seed=feeder.order.seed, training=True, depth=1, readers=feeder.readers
    )
    try:
        for chosen in feeder.order.epoch(0)[:count]:
            reader.request(chosen, 0)
            x, y = reader.receive()
            yield feeder.prepare(x.clone().to(feeder.device), y.clone().to(feeder.device))
    finally:
        reader.close()


def _loading(batches: Iterator[Batch]) -> tuple[float, Batch]:
    """The median time to load a batch, and one batch."""
    times = []
    start_s = perf_counter()
    batch = None
    for number, batch in enumerate(batches):
        _wait(batch[0].device)
        if number >= WARM_UP:
            times.append(perf_counter() - start_s)
        if number >= WARM_UP + 8:
            break
        start_s = perf_counter()
    assert batch is not None
    return median(times), batch


def _computing(step: Step, batch: Batch, count: int) -> float:
    times = []
    for number in range(count + WARM_UP):
        start_s = perf_counter()
        step.take(batch)
        _wait(batch[0].device)
        if number >= WARM_UP:
            times.append(perf_counter() - start_s)
    return median(times)


def _fed(
    step: Step, batches: Iterator[Batch], count: int, watch: Callable[[int, int], None] | None
) -> list[tuple[float, float]]:
    found = []
    asked_s = perf_counter()
    for number, batch in zip(range(1, count + 1), batches, strict=False):
        began_s = perf_counter()
        found.append((began_s, began_s - asked_s))
        step.take(batch)
        _wait(batch[0].device)
        if watch is not None:
            watch(number, count)
        asked_s = perf_counter()
    return found


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
