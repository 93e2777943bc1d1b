"""Whole runs, from reading the data to the last validation: the step that `auto` chooses against `plain`.

Everything counts, compiling and capturing too, so `auto` must not be slower than `plain` anywhere.
Plain is measured twice a round: its ratio to itself shows how much of any difference is noise.
"""

from __future__ import annotations

from statistics import median
from time import perf_counter
from typing import Any

import paceline
from benchmarks.compiler import forget_compiled
from benchmarks.options import Options, digits_of_28
from benchmarks.rounds import Spread, how_many, interleave, ratios
from benchmarks.table import show, show_table
from paceline.workload import Workload, resolve

TOO_NOISY = 1.1  # plain against itself; beyond it, a ratio above 1 says nothing either way
BUDGET_S = 18.0  # for the rounds of one workload


def cases(options: Options) -> list[Workload]:
    """Several seconds in all on two cores; a GPU gets more epochs, for it would be done too soon."""
    longer = 5 if options.device.type == "cuda" else 1
    chosen: list[tuple[str, dict[str, Any]]] = [
        ("mlp", {"data": "digits", "epochs": 40}),
        ("mlp", {"data": digits_of_28(5000), "epochs": 6}),
        ("dnn", {"data": digits_of_28(5000), "epochs": 4}),
        ("lenet5", {"data": digits_of_28(2000), "epochs": 1}),
        ("lstm", {"data": "digits", "epochs": 8}),
        ("lstm", {"data": digits_of_28(2000), "epochs": 1}),
        ("alexnet", {"data": "synthetic:3x224x224/1000:16", "batch": 8, "epochs": 1}),
        ("resnet20", {"data": "synthetic:3x32x32/10:512", "epochs": 1}),
        ("textlstm", {"data": "text:512", "epochs": 1}),
        ("transformer", {"data": "text:256", "epochs": 1}),
    ]
    return [
        resolve(name, {**settings, "epochs": settings["epochs"] * longer, "device": options.device.type})
        for name, settings in chosen
    ]


def run(options: Options) -> list[dict[str, Any]]:
    results = [_run_case(workload, options) for workload in cases(options)]
    show_table(
        f"auto: whole runs, auto / plain and (min–max), {options.device.type}, threads as Paceline chooses them",
        (
            "",
            "step",
            "plain takes",
            "auto / plain",
            "plain / plain",
            "rounds",
            "loss auto, plain",
            "",
        ),
        [_row(result) for result in results],
    )
    show("(noise): no further above 1 than plain usually is from itself. Too noisy: plain is 10 % from itself.")
    return results


def _run_case(workload: Workload, options: Options) -> dict[str, Any]:
    last: dict[str, paceline.Run] = {}

    def timed(step: str) -> float:
        forget_compiled()
        start_s = perf_counter()
        last[step] = paceline.train(workload, step=step)
        return perf_counter() - start_s

    timed("auto")  # libraries load and choose algorithms in the first runs of a process
    warm_s = timed("plain")
    rounds = how_many(options.rounds, options.quick, 3 * warm_s, BUDGET_S)
    measures = {
        "auto": lambda: timed("auto"),
        "plain": lambda: timed("plain"),
        "plain again": lambda: timed("plain"),
    }
    seconds = interleave(measures, rounds)
    return {
        "case": workload.network, "data": workload.data, "batch": workload.batch, "epochs": workload.epochs,
        "step": last["auto"].step.kind, "reason": last["auto"].step.reason, "seconds": seconds,
        "threads": last["auto"].conditions.threads,
        "loss": {step: made.epochs[-1].loss for step, made in last.items()},
    }  # fmt: skip


def _row(result: dict[str, Any]) -> list[str]:
    seconds, loss = result["seconds"], result["loss"]
    plain = [(a + b) / 2 for a, b in zip(seconds["plain"], seconds["plain again"], strict=True)]
    ratio = Spread.of(ratios(seconds["auto"], plain))
    against_itself = ratios(seconds["plain"], seconds["plain again"])
    noise = median(max(r, 1 / r) for r in against_itself)
    return [
        f"{result['case']}, {result['data']}, batch {result['batch']}",
        result["step"],
        f"{Spread.of(plain).median:.2f} s",
        ratio.text(),
        Spread.of(against_itself).text(),
        str(len(plain)),
        f"{loss['auto']:.4f}, {loss['plain']:.4f}",
        _judged(ratio.median, noise),
    ]


def _judged(ratio: float, noise: float) -> str:
    if ratio <= 1.0:
        return "PASS"
    if noise > TOO_NOISY:
        return "too noisy to tell"
    return "PASS (noise)" if ratio <= noise else f"slower by {100 * (ratio - 1):.0f} %"
