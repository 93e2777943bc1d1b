"""Networks that people pay for: Paceline's `auto` against the best loop that one can write by hand.

The best of the hand-written loops is chosen in rounds of its own, so that it is not the luckiest. `first step` is the
time from building the network to the end of the first step; run it twice to see what a second run pays.
"""

from __future__ import annotations

import gc
from statistics import median
from time import perf_counter
from typing import Any

import torch

from benchmarks.hand_loops import LOOPS, HandLoop, PacelineLoop
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
ROUND_S, CHOOSING_ROUNDS, ROUNDS, WARM_UP = 0.7, 2, 5, 1
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
    started: dict[str, HandLoop | PacelineLoop] = {}
    first_s, failed = {}, {}
    for kind in (*loops, "auto"):
        gc.collect()
        began = perf_counter()
        try:
            made = (PacelineLoop if kind == "auto" else HandLoop)(workload, kind, options.device)
            made.run(1)
            _wait(options.device)
        except Exception as error:  # a loop that this network cannot have is no competitor
            failed[kind] = str(error).splitlines()[0] if str(error) else type(error).__name__
            show(f"{name}, {kind}: {failed[kind]:.120}")
            continue
        started[kind], first_s[kind] = made, perf_counter() - began
    counts = {kind: _count(made, options.device) for kind, made in started.items()}
    measures = {
        kind: (lambda made=made, count=counts[kind]: batch / _seconds(made, count, options.device))
        for kind, made in started.items()
    }
    hand = {kind: measure for kind, measure in measures.items() if kind != "auto"}
    found = interleave(hand, CHOOSING_ROUNDS)
    best = max(hand, key=lambda kind: median(found[kind]))
    ours = started["auto"]
    assert isinstance(ours, PacelineLoop)
    rates = interleave({best: measures[best], "auto": measures["auto"]}, options.rounds or ROUNDS)
    return {
        "network": name, "batch": batch, "samples_per_s": {**found, **rates}, "best": best, "failed": failed,
        "ratios": [mine / theirs for mine, theirs in zip(rates["auto"], rates[best], strict=True)],
        "first_s": first_s, "step": ours.choice.kind, "reason": ours.choice.reason,
    }  # fmt: skip


def _seconds(made: HandLoop | PacelineLoop, count: int, device: torch.device) -> float:
    made.prepare()
    made.run(WARM_UP)
    _wait(device)
    start = perf_counter()
    made.run(count)
    _wait(device)
    return (perf_counter() - start) / count


def _count(made: HandLoop | PacelineLoop, device: torch.device) -> int:
    return max(2, round(ROUND_S / _seconds(made, 2, device)))


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def _row(result: dict[str, Any], loops: list[str]) -> tuple[str, ...]:
    rates, ratio = result["samples_per_s"], Spread.of(result["ratios"])
    hand = [f"{median(rates[kind]):,.0f}" if kind in rates else "-" for kind in loops]
    eager, ours = (result["first_s"].get(kind) for kind in ("eager", "auto"))
    return (
        result["network"].split(":")[-1], str(result["batch"]), *hand, f"{median(rates['auto']):,.0f}", result["step"],
        ratio.text(), "-" if eager is None else f"{eager:.1f} s", f"{ours:.1f} s", verdict(ratio.median, BAR),
    )  # fmt: skip
