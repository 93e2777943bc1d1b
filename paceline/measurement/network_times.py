"""The times of a whole network that a cost model is fitted to or compared with: fewer than a measurement has.

On a GPU they take about a second per network. The kernels of a layer take equally long however they are launched, so
they are traced in a few marked iterations of the step; the iteration is timed without marks, and so is the host, from
an idle device, so that it never waits for the device's queue.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter

import torch

from paceline.measurement.block_kernels import busy_s
from paceline.measurement.captured import marked_kernels
from paceline.measurement.kernels import keys_by_launch
from paceline.measurement.mark_log import SCORE
from paceline.measurement.measurement import Measurement
from paceline.step.build import assemble, load_data
from paceline.step.choose import make_step
from paceline.step.graph import GraphStep
from paceline.step.placement import choose_device
from paceline.step.step import Step
from paceline.step.tally import Tally
from paceline.workload import Workload

WARM_UP = 3
ROUNDS = 5
ROUND_S = 0.05
MIN_PER_ROUND = 4
HOST_ROUNDS = 7
COMPARED_ROUNDS = 9


@dataclass(frozen=True)
class NetworkTimes:
    """Seconds of one network at one batch size, run by one kind of step."""

    name: str
    batch: int
    step: str
    precision: str
    data: str
    optimizer: str
    iteration_s: float
    layers: dict[str, tuple[float, float]]
    """Forward and backward time by layer; on a GPU the time of its kernels."""
    parts_s: dict[str, float]
    """`load`, `update`, `idle` and `loop`, where known."""
    score_s: float = 0.0
    host_s: float = 0.0
    """Time of the host to launch an iteration that is not captured, on a GPU."""
    drift: dict[str, float] = field(default_factory=dict)
    """Slowdown of the machine by probe, where known."""

    @property
    def workload(self) -> Workload:
        return Workload(
            self.name, self.data, batch=self.batch, optimizer=self.optimizer, precision=self.precision
        )  # fmt: skip


def times_of(measurement: Measurement) -> NetworkTimes:
    """The times of a measured network."""
    layers = {layer.name: (layer.forward_s.median_s, layer.backward_s.median_s) for layer in measurement.layers}
    score_s, _ = layers.pop(SCORE, (0.0, 0.0))
    conditions = measurement.conditions
    return NetworkTimes(
        measurement.name, measurement.batch, measurement.step, conditions.get("precision", "float32"),
        conditions.get("data", ""), conditions.get("optimizer", "sgd"), measurement.iteration_s.median_s, layers,
        dict(measurement.parts_s), score_s,
    )  # fmt: skip


def time_network(workload: Workload, step: str) -> NetworkTimes:
    """Times a network on a GPU."""
    device, _ = choose_device(workload.device)
    parts = assemble(workload, load_data(workload), device)
    taken, choice = make_step(parts, step)
    run = _runner(taken)
    run(WARM_UP)
    iteration_s = _iteration_s(run, device)
    host_s = 0.0 if isinstance(taken, GraphStep) else _host_s(run, device)
    busy = _busy_s(taken)
    taken.close()
    layers: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    found: dict[str, float] = defaultdict(float)
    for (part, row), seconds in busy.items():
        if part in ("forward", "backward"):
            layers[row][part == "backward"] += seconds
        else:
            found[part] += seconds
    return NetworkTimes(
        workload.network, workload.batch, choice.kind, workload.precision, workload.data, workload.optimizer,
        iteration_s, {row: (forward, backward) for row, (forward, backward) in layers.items()}, dict(found),
        host_s=host_s,
    )  # fmt: skip


def compare_steps(workload: Workload, one: str, other: str) -> float:
    """The time of an iteration by one kind of step divided by that of the other, run in turns."""
    device, _ = choose_device(workload.device)
    taken = [make_step(assemble(workload, load_data(workload), device), kind)[0] for kind in (one, other)]
    runs = [_runner(step) for step in taken]
    for run in runs:
        run(WARM_UP)
    counts = [max(MIN_PER_ROUND, min(200, round(ROUND_S / _timed(run, MIN_PER_ROUND, device)))) for run in runs]
    ratios = []
    for _ in range(COMPARED_ROUNDS):
        first_s, second_s = (_timed(run, count, device) for run, count in zip(runs, counts, strict=True))
        ratios.append(first_s / second_s)
    for step in taken:
        step.close()
    return median(ratios)


def _runner(step: Step) -> Callable[[int], None]:
    """Runs a number of iterations, on through the epochs."""
    tally, whole = Tally(step.parts.workload.top), max(1, step.parts.feeder.order.full_batches)
    epoch, left = 0, 0

    def run(count: int) -> None:
        nonlocal epoch, left
        while count:
            if not left:
                step.begin(epoch)
                epoch, left = epoch + 1, whole
            now = min(left, count)
            step.advance(now, tally)
            left, count = left - now, count - now

    return run


def _iteration_s(run: Callable[[int], None], device: torch.device) -> float:
    count = MIN_PER_ROUND
    each_s = _timed(run, count, device)
    count = max(count, min(200, round(ROUND_S / each_s)))
    return median(_timed(run, count, device) for _ in range(ROUNDS))


def _timed(run: Callable[[int], None], count: int, device: torch.device) -> float:
    _wait_for(device)
    start = perf_counter()
    run(count)
    _wait_for(device)
    return (perf_counter() - start) / count


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _host_s(run: Callable[[int], None], device: torch.device) -> float:
    found = []
    for _ in range(HOST_ROUNDS):
        torch.cuda.synchronize(device)
        start = perf_counter()
        run(1)
        found.append(perf_counter() - start)
    torch.cuda.synchronize(device)
    return median(found)


def _busy_s(step: Step) -> dict[tuple[str, str], float]:
    """Seconds of the device per iteration, by part and layer."""
    kernels, logs = marked_kernels(step)
    if not kernels:
        return {}
    busy, _ = busy_s(kernels, keys_by_launch(kernels, logs))
    keys = {key for seconds in busy.values() for key in seconds}
    return {key: median(busy[number].get(key, 0.0) for number in busy) for key in keys}
