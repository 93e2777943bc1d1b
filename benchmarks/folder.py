"""AlexNet fed from a folder of JPEGs: is training as fast as the slower of its step and its decoders?

Three rates in samples a second: the step on samples that are there already, the decoders of all cores with
nothing else running, and training from the folder, where both run at once. Before these, what one decoder reaches.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from benchmarks.contenders import synchronise
from benchmarks.decoding import IMAGES, compare_decoders, decoding_rate, image_files
from benchmarks.options import Options
from benchmarks.pictures import CLASSES, make_folder
from benchmarks.rounds import Spread, how_many, interleave, ratios
from benchmarks.table import show, show_table, verdict
from paceline.data.dataset import Dataset
from paceline.step.build import assemble, load_data
from paceline.step.feeder import DEPTH
from paceline.step.placement import available_cores
from paceline.step.step import Step
from paceline.step.tally import Tally
from paceline.training.step_choice import choose_step
from paceline.workload import resolve

BAR = 0.90
IMPOSSIBLE = 1.05  # training cannot be faster than its own step, beyond the noise
BUDGET_S = 120.0


@dataclass(frozen=True)
class Size:
    """In batches: run before the clock starts, and timed. `different` is the number of drawn pictures."""

    batch: int
    warm_up: int
    timed: int
    timed_decoding: int
    different: int

    @property
    def batches(self) -> int:
        """Enough that reading ahead does not end while the clock runs."""
        return self.warm_up + max(self.timed, self.timed_decoding) + 2 * DEPTH


def size_for(options: Options) -> Size:
    if options.device.type == "cuda":
        return Size(32, 8, 16, 16, 64) if options.quick else Size(128, 8, 48, 48, 256)
    # While the first step of a CPU computes, the decoders fill all that is in flight.
    return Size(8, 2, 4, 16, 32) if options.quick else Size(128, 1, 2, 4, 256)


def run(options: Options) -> list[dict[str, Any]]:
    size = size_for(options)
    with tempfile.TemporaryDirectory(prefix="pictures-") as folder:
        count = max(IMAGES, size.batch * size.batches)
        mean_bytes = make_folder(Path(folder), count, different=size.different)
        show(f"folder: JPEGs of 500 x 375, {mean_bytes / 1024:.0f} KiB on average")
        source = f"images:{folder}"
        return [compare_decoders(source, Path(folder) / "cache", options), _compare(source, size, options)]


def _compare(source: str, size: Size, options: Options) -> dict[str, Any]:
    # The same epochs for both, so that `auto` chooses the same step.
    settings = {"batch": size.batch, "epochs": 20, "device": options.device.type}
    beside = {**settings, "data": f"synthetic:3x224x224/{CLASSES}:{size.batch * (size.warm_up + size.timed)}"}
    resident, _ = _step(beside, options)
    fed, images = _step({**settings, "data": source}, options)
    threads = torch.get_num_threads()
    try:
        measures = {
            "step": Training(resident, size.warm_up, size.timed).rate,
            "decoding": lambda: decoding_rate(image_files(images), size.batch, size.warm_up, size.timed_decoding),
            "training": Training(fed, size.warm_up, size.timed).rate,
        }
        start_s = perf_counter()
        for measure in measures.values():
            measure()  # the warm-up
        rounds = how_many(options.rounds, options.quick, perf_counter() - start_s, BUDGET_S)
        rates = interleave(measures, rounds)
    finally:
        resident.close()
        fed.close()
    return _show(rates, size, options, threads, (resident.kind, fed.kind))


def _step(settings: dict[str, Any], options: Options) -> tuple[Step, Dataset]:
    workload = resolve("alexnet", settings)
    dataset = load_data(workload)
    return choose_step(assemble(workload, dataset, options.device), "auto")[0], dataset


class Training:
    """Trains some steps of a new epoch a round, and stops before the reading ahead runs dry."""

    def __init__(self, step: Step, warm_up: int, timed: int) -> None:
        self.step, self.warm_up, self.timed = step, warm_up, timed
        self.epoch = 0

    def rate(self) -> float:
        parts = self.step.parts
        self.step.begin(self.epoch)
        self.epoch += 1
        self._advance(self.warm_up)
        start_s = perf_counter()
        samples = self._advance(self.timed)
        seconds = perf_counter() - start_s
        self.step.close()  # its decoders must be gone before another is measured
        synchronise(parts.device)
        return samples / seconds

    def _advance(self, count: int) -> int:
        tally = Tally(self.step.parts.workload.top)
        self.step.advance(count, tally)
        samples = tally.read().samples
        synchronise(self.step.parts.device)
        return samples


def _judged(share: float) -> str:
    if share > IMPOSSIBLE:
        return "not valid, more than all of it: something else used this machine; run it again"
    return verdict(share, BAR)


def _show(
    rates: dict[str, list[float]], size: Size, options: Options, threads: int, kinds: tuple[str, str]
) -> dict[str, Any]:
    step, decoding, training = (Spread.of(rates[name]) for name in ("step", "decoding", "training"))
    limits = [min(pair) for pair in zip(rates["step"], rates["decoding"], strict=True)]
    found = ratios(rates["training"], limits)
    share = Spread.of(found)
    show_table(
        f"folder: AlexNet, batch {size.batch}, {options.device.type}, {available_cores()} decoders, "
        f"{threads} threads, {len(found)} rounds",
        ("", "samples/s (min–max)"),
        [
            (f"the step alone ({kinds[0]}), samples in memory", step.text(1)),
            ("decoding alone", decoding.text(1)),
            (f"training from the folder ({kinds[1]})", training.text(1)),
        ],
    )
    limit = "the step" if step.median <= decoding.median else "decoding"
    show(f"{limit} limits; training reaches {share.text()} of it, bar {BAR:g}: {_judged(share.median)}")
    if options.device.type == "cpu":
        both = [1 / (1 / s + 1 / d) for s, d in zip(rates["step"], rates["decoding"], strict=True)]
        possible = Spread.of(ratios(both, limits)).median
        show(f"Step and decoders share the cores here: without any loss it would be {possible:.2f}.")
    return {
        "case": f"alexnet-{size.batch}", "samples_per_s": rates, "ratios": found, "bar": BAR, "limit": limit,
        "steps": kinds, "threads": threads,
    }  # fmt: skip
