"""Decoded samples/s per core: Pillow alone, the fast path for JPEGs, and images kept decoded on disk.

A core's second is a second of CPU time of a decoder, so that other programs on the machine take nothing from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.options import Options
from benchmarks.rounds import Spread, interleave, ratios
from benchmarks.table import show, show_table, verdict
from paceline.data import load
from paceline.data.dataset import Dataset
from paceline.data.image_reader import ImageReader
from paceline.data.images import ImageFiles, keep_decoded
from paceline.step.feeder import DEPTH
from paceline.step.order import Order
from paceline.step.placement import available_cores

BAR = 1.5
BATCH, WARM_UP, TIMED = 32, 4, 20
IMAGES = BATCH * (WARM_UP + TIMED + DEPTH)
ROUNDS, QUICK_ROUNDS = 7, 2
CACHE_BYTES = 10_000_000_000
NAMES = {
    "pillow": "Pillow, as before",
    "fast": "libjpeg-turbo and vector instructions",
    "kept": "kept decoded on disk (decoded_cache_gb)",
}


def compare_decoders(source: str, cache: Path, options: Options) -> dict[str, Any]:
    images = load(source, cache=cache)
    files = image_files(images).first(IMAGES)
    kept = image_files(keep_decoded(images, CACHE_BYTES)).first(IMAGES)

    def rate(files: ImageFiles, fast: bool = True) -> float:
        return _decode(files, BATCH, WARM_UP, TIMED, readers=1, fast=fast).per_core

    measures = {"pillow": lambda: rate(files, fast=False), "fast": lambda: rate(files), "kept": lambda: rate(kept)}
    for measure in measures.values():
        measure()  # the warm-up, which also fills the cache
    rates = interleave(measures, options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS))
    faster = {name: ratios(rates[name], rates["pillow"]) for name in measures}
    show_table(
        f"folder: decoded samples/s per core, 3 x 224 x 224, {len(rates['fast'])} rounds",
        ("", "samples/s (min–max)", "of Pillow's"),
        [(NAMES[name], Spread.of(rates[name]).text(0), Spread.of(faster[name]).text()) for name in measures],
    )
    share = Spread.of(faster["fast"])
    show(f"decoding reaches {share.text()} times Pillow's rate, bar {BAR:g}: {verdict(share.median, BAR)}")
    return {"case": "decoder", "samples_per_s": rates, "ratios": faster["fast"], "bar": BAR}


def image_files(images: Dataset) -> ImageFiles:
    assert isinstance(images.train, ImageFiles)
    return images.train


def decoding_rate(files: ImageFiles, batch: int, warm_up: int, timed: int) -> float:
    """Samples/s of decoders on all cores."""
    return _decode(files, batch, warm_up, timed, readers=available_cores(), fast=True).rate


@dataclass(frozen=True)
class _Decoded:
    samples: int
    wall_s: float
    cpu_s: float

    @property
    def rate(self) -> float:
        return self.samples / self.wall_s

    @property
    def per_core(self) -> float:
        return self.samples / self.cpu_s


def _decode(files: ImageFiles, batch: int, warm_up: int, timed: int, *, readers: int, fast: bool) -> _Decoded:
    """Batches are in flight when the clock starts and when it stops, so that neither end counts too much."""
    batches = Order(len(files), batch, seed=0).epoch(0)
    reader = ImageReader(
        files.paths, files.labels, batch=batch, size=files.size, seed=0, training=True, depth=DEPTH, readers=readers,
        fast=fast, cache=files.cache if files.cache_bytes else None, cache_bytes=files.cache_bytes,
    )  # fmt: skip
    try:
        for chosen in batches[:DEPTH]:
            reader.request(chosen, 0)
        start_s, start_cpu_s = 0.0, 0.0
        for number in range(warm_up + timed):
            if number == warm_up:
                start_s, start_cpu_s = perf_counter(), _cpu_s(reader)
            reader.receive()
            reader.request(batches[number + DEPTH], 0)
        return _Decoded(batch * timed, perf_counter() - start_s, _cpu_s(reader) - start_cpu_s)
    finally:
        reader.close()


def _cpu_s(reader: ImageReader) -> float:
    """Seconds that the decoders have computed so far."""
    return sum(int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) for pid in reader.process_ids) / 1e9
