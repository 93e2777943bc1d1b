"""Networks that people pay for: Paceline's `auto` against the best loop that one can write by hand.

The best of the hand-written loops is chosen in rounds of its own, so that it is not the luckiest. `first step` is the
time from building the network to the end of the first step; run it twice to see what a second run pays.
"""

from __future__ import annotations

from statistics import median
from typing import Any

import torch

from benchmarks.hand_loops import LOOPS
from benchmarks.loop_process import LoopFailed, LoopProcess
from benchmarks.options import Options
from benchmarks.rounds import Spread, interleave
from benchmarks.table import show, show_table, verdict
from paceline.workload import Workload, resolve

OWN = "benchmarks.unseen_networks:"
IMAGES = "synthetic:3x224x224/1000:1280"
CASES: dict[str, dict[str, tuple[str, int]]] = {
    "cuda": {
        "resnet50": (IMAGES, 128), "vgg16": (IMAGES, 128), "googlenet": (IMAGES, 128), "transformer": ("text", 256),
        f"{OWN}mobilenet": (IMAGES, 128), f"{OWN}vit": (IMAGES, 128), f"{OWN}convnext": (IMAGES, 64),
        f"{OWN}gpt": ("tokens:512/32000:160", 16),
    },
    "cpu": {
        "lenet5": ("synthetic:1x28x28/10:1280", 64), "resnet18": ("synthetic:3x64x64/100:128", 8),
        "resnet20": ("synthetic:3x32x32/10:640", 64), "transformer": ("text", 16),
        f"{OWN}mobilenet": ("synthetic:3x224x224/1000:80", 8),
    },
}  # fmt: skip
BAR = 0.98
ROUND_S, CHOOSING_ROUNDS, ROUNDS = 0.7, 2, 5
EPOCHS = 100_000
"""Long enough for `auto` to consider compiling."""


def run(options: Options) -> list[dict[str, Any]]:
    cases = {n: c for n, c in CASES[options.device.type].items() if not options.networks or n in options.networks}
    loops = [kind for kind in LOOPS if (kind != "captured" or options.device.type == "cuda")]
    loops = [kind for kind in loops if not options.modes or kind in options.modes]
    results = [_run_case(name, *case, loops, options) for name, case in cases.items()]
    show_table(
        "large: samples/s, and Paceline against the best hand-written loop (min–max)",
        ("", "batch", *loops, "Paceline", "step", "against the best", "first step, eager", "first step", ""),
        [_row(result, loops) for result in results],
    )
    return results


def workload_of(name: str, data: str, batch: int, device: torch.device) -> Workload:
    precision = "bfloat16" if device.type == "cuda" else "float32"
    settings = {"data": data, "batch": batch, "epochs": EPOCHS, "device": device.type, "precision": precision}
    return resolve(name, {**settings, "optimizer": "momentum", "lr": 1e-4, "schedule": "constant"})


def _run_case(name: str, data: str, batch: int, loops: list[str], options: Options) -> dict[str, Any]:
    workload = workload_of(name, data, batch, options.device)
    started: dict[str, LoopProcess] = {}
    failed: dict[str, str] = {}
    try:
        for kind in (*loops, "auto"):
            try:
                started[kind] = LoopProcess(workload, kind, options.device.type)
            except LoopFailed as error:
                failed[kind] = str(error)
                show(f"{name}, {kind}: {error!s:.120}")
        return {"network": name, "batch": batch, "failed": failed, **_compared(started, batch, options)}
    finally:
        for loop in started.values():
            loop.close()


def _compared(started: dict[str, LoopProcess], batch: int, options: Options) -> dict[str, Any]:
    counts = {kind: max(2, round(ROUND_S / loop.seconds(2))) for kind, loop in started.items()}
    measures = {
        kind: (lambda loop=loop, count=counts[kind]: batch / loop.seconds(count)) for kind, loop in started.items()
    }
    hand = {kind: measure for kind, measure in measures.items() if kind != "auto"}
    found = interleave(hand, CHOOSING_ROUNDS)
    best = max(hand, key=lambda kind: median(found[kind]))
    rates = interleave({best: measures[best], "auto": measures["auto"]}, options.rounds or ROUNDS)
    return {
        "samples_per_s": {**found, **rates}, "best": best,
        "ratios": [mine / theirs for mine, theirs in zip(rates["auto"], rates[best], strict=True)],
        "first_s": {kind: loop.first_s for kind, loop in started.items()},
        "step": started["auto"].step, "reason": started["auto"].reason,
    }  # fmt: skip


def _row(result: dict[str, Any], loops: list[str]) -> tuple[str, ...]:
    rates, ratio = result["samples_per_s"], Spread.of(result["ratios"])
    hand = [f"{median(rates[kind]):,.0f}" if kind in rates else "-" for kind in loops]
    eager, ours = (result["first_s"].get(kind) for kind in ("eager", "auto"))
    return (
        result["network"].split(":")[-1], str(result["batch"]), *hand, f"{median(rates['auto']):,.0f}", result["step"],
        ratio.text(), "-" if eager is None else f"{eager:.1f} s", f"{ours:.1f} s", verdict(ratio.median, BAR),
    )  # fmt: skip
