"""Times a whole network on a GPU, in about a second.

The kernels of a layer take equally long however they are launched, so they are traced in a few marked iterations of the
step; the iteration is timed without marks, and so is the host, from an idle device, so that it never waits for the
device's queue.
"""

from __future__ import annotations

from collections import defaultdict
from statistics import median
from time import perf_counter

import torch

from paceline.measurement.block_kernels import busy_s
from paceline.measurement.captured import marked_kernels
from paceline.measurement.kernels import keys_by_launch
from paceline.measurement.network_times import NetworkTimes
from paceline.step.build import assemble, load_data
from paceline.step.graph import GraphStep
from paceline.step.make import make_step
from paceline.step.placement import choose_device
from paceline.step.step import Step
from paceline.step.tally import Tally
from paceline.workload import Workload

WARM_UP = 3
ROUNDS = 5
ROUND_S = 0.05
MIN_PER_ROUND, MAX_PER_ROUND = 4, 1000
HOST_ROUNDS = 7
COMPARED_ROUNDS = 9


def time_network(workload: Workload, step: str) -> NetworkTimes:
    """Times a network on a GPU."""
    device, _ = choose_device(workload.device)
    parts = assemble(workload, load_data(workload), device)
    taken, choice = make_step(parts, step)
    runner = _Runner(taken, device)
    runner.run(WARM_UP)
    count = _per_round(runner)
    iteration_s = median(runner.seconds(count) for _ in range(ROUNDS))
    host_s = 0.0 if isinstance(taken, GraphStep) else median(runner.host_s() for _ in range(HOST_ROUNDS))
    _wait_for(device)
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
        host_s=host_s, memory_format=workload.memory_format,
    )  # fmt: skip


def compare_steps(workload: Workload, one: str, other: str) -> float:
    """The time of an iteration by one kind of step divided by that of the other, run in turns."""
    device, _ = choose_device(workload.device)
    taken = [make_step(assemble(workload, load_data(workload), device), kind)[0] for kind in (one, other)]
    runners = [_Runner(step, device) for step in taken]
    for runner in runners:
        runner.run(WARM_UP)
    counts = [_per_round(runner) for runner in runners]
    ratios = []
    for _ in range(COMPARED_ROUNDS):
        first_s, second_s = (runner.seconds(count) for runner, count in zip(runners, counts, strict=True))
        ratios.append(first_s / second_s)
    for step in taken:
        step.close()
    return median(ratios)


def iteration_times(step: Step, budget_s: float) -> list[float]:
    """Seconds per iteration of a step in several rounds; in at least two, also if these take longer than the budget."""
    runner = _Runner(step, step.parts.device)
    runner.run(WARM_UP)
    begun = perf_counter()
    count = max(1, min(MAX_PER_ROUND, round(ROUND_S / runner.seconds(1))))
    found: list[float] = []
    while len(found) < 2 or (len(found) < COMPARED_ROUNDS and perf_counter() - begun < budget_s):
        found.append(runner.seconds(count))
    return found


class _Runner:
    """Runs iterations of a step, on through the epochs; an epoch begins before the time counts.

    A captured step replays many iterations at once and pays for the start of such a window. In a training a window is
    as long as the epoch lets it be, so what is timed is one piece of an epoch, too.
    """

    def __init__(self, step: Step, device: torch.device) -> None:
        self.step, self.device = step, device
        self.tally, self.whole = Tally(step.parts.workload.top), max(1, step.parts.feeder.order.full_batches)
        self.epoch = self.left = 0

    def run(self, count: int) -> None:
        while count:
            if not self.left:
                self._begin()
            now = min(self.left, count)
            self.step.advance(now, self.tally)
            self.left, count = self.left - now, count - now

    def seconds(self, count: int) -> float:
        """The time of an iteration, from `count` of them or an epoch's."""
        count = min(count, self.whole)
        if self.left < count:
            self.run(self.left)
            self._begin()
        _wait_for(self.device)
        start = perf_counter()
        self.run(count)
        _wait_for(self.device)
        return (perf_counter() - start) / count

    def host_s(self) -> float:
        """The host's time to launch an iteration on an idle device."""
        _wait_for(self.device)
        start = perf_counter()
        self.run(1)
        return perf_counter() - start

    def _begin(self) -> None:
        self.step.begin(self.epoch)
        self.epoch, self.left = self.epoch + 1, self.whole


def _per_round(runner: _Runner) -> int:
    """Iterations that take about as long as a round should."""
    return max(MIN_PER_ROUND, min(MAX_PER_ROUND, round(ROUND_S / runner.seconds(MIN_PER_ROUND))))


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _busy_s(step: Step) -> dict[tuple[str, str], float]:
    """Seconds of the device per iteration, by part and layer."""
    kernels, logs = marked_kernels(step)
    if not kernels:
        return {}
    busy, _ = busy_s(kernels, keys_by_launch(kernels, logs))
    keys = {key for seconds in busy.values() for key in seconds}
    return {key: median(busy[number].get(key, 0.0) for number in busy) for key in keys}
