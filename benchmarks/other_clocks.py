"""What else there is to see where time goes: torch.profiler, and hooks on modules that wait for the device.

Both look at every iteration of a plain step, which is what they are put into.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil
from statistics import median
from time import perf_counter
from typing import Any

import torch
from torch import nn
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from benchmarks.rounds import interleave, ratios
from benchmarks.step_loop import StepLoop, synchronise
from paceline.step.build import assemble, load_data
from paceline.step.make import make_step
from paceline.workload import Workload

SHORT_BLOCK_S = 0.2
MOST_ITERATIONS = 30  # a profiler keeps every operation


@dataclass(frozen=True)
class OtherClock:
    name: str
    overheads: list[float]
    accounted: float
    """What it books, over the iteration without it."""
    failure: str = ""


def other_clocks(workload: Workload, device: torch.device, rounds: int) -> list[OtherClock]:
    parts = assemble(workload, load_data(workload), device)
    step, _ = make_step(parts, "plain")
    loop = StepLoop(step)
    loop.run(3)
    count = max(2, min(MOST_ITERATIONS, ceil(SHORT_BLOCK_S / loop.timed(2))))
    booked: dict[str, list[float]] = {}
    ways: dict[str, Callable[[StepLoop, int], tuple[float, float]]] = {
        "torch.profiler": profiled,
        "synchronised hooks": hooked,
    }
    failures: dict[str, str] = {}
    for name, way in ways.items():
        try:
            way(loop, 2)  # the first trace of a process takes seconds
        except RuntimeError as error:
            failures[name] = " ".join(str(error).split())[:60]

    def measured(name: str) -> float:
        seconds, own = ways[name](loop, count)
        booked.setdefault(name, []).append(own)
        return seconds

    measures = {"bare": lambda: loop.timed(count)}
    measures |= {name: lambda name=name: measured(name) for name in ways if name not in failures}  # type: ignore[misc]
    seconds = interleave(measures, rounds)
    step.close()
    return [
        OtherClock(name, [], float("nan"), failures[name])
        if name in failures
        else OtherClock(
            name,
            [ratio - 1.0 for ratio in ratios(seconds[name], seconds["bare"])],
            median(ratios(booked[name], seconds["bare"])),
        )
        for name in ways
    ]


def profiled(loop: StepLoop, count: int) -> tuple[float, float]:
    """Seconds an iteration inside the profiler, and what its operations (on a GPU, its kernels) have of it."""
    on_gpu = loop.step.parts.device.type == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    with profile(activities=activities) as profiler:
        seconds = loop.timed(count)
    averages = profiler.key_averages()
    if on_gpu:  # an operation's entry has the time of its kernels again, and a range that of all in it
        kernels = (a for a in averages if a.device_type == DeviceType.CUDA and not a.is_user_annotation)
        own_us = sum(a.self_device_time_total for a in kernels)
    else:
        own_us = sum(a.self_cpu_time_total for a in averages)
    return seconds, 1e-6 * own_us / count


def hooked(loop: StepLoop, count: int) -> tuple[float, float]:
    """Seconds an iteration with hooks on every leaf, and what they book."""
    with synchronised_hooks(loop.step.parts.network, loop.step.parts.device) as booked:
        seconds = loop.timed(count)
    return seconds, sum(booked.values()) / count


@contextmanager
def synchronised_hooks(network: nn.Module, device: torch.device) -> Iterator[dict[tuple[str, str], float]]:
    """Seconds by (forward or backward, layer). In-place operations are turned off, for the hooks raise on them."""
    booked: dict[tuple[str, str], float] = {}
    started: dict[tuple[str, str], float] = {}
    handles = []

    def start(owner: tuple[str, str]) -> Callable[..., None]:
        def hook(*_: Any) -> None:
            synchronise(device)
            started[owner] = perf_counter()

        return hook

    def stop(owner: tuple[str, str]) -> Callable[..., None]:
        def hook(*_: Any) -> None:
            synchronise(device)
            if owner in started:
                booked[owner] = booked.get(owner, 0.0) + perf_counter() - started.pop(owner)

        return hook

    in_place: list[Any] = [m for m in network.modules() if getattr(m, "inplace", False)]
    for module in in_place:
        module.inplace = False
    for name, module in network.named_modules():
        if not list(module.children()):
            forward, backward = ("forward", name), ("backward", name)
            handles += [
                module.register_forward_pre_hook(start(forward)),
                module.register_forward_hook(stop(forward)),
                module.register_full_backward_pre_hook(start(backward)),
                module.register_full_backward_hook(stop(backward)),
            ]
    try:
        yield booked
    finally:
        for handle in handles:
            handle.remove()
        for module in in_place:
            module.inplace = True
