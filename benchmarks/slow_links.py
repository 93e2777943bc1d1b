"""Predicted and measured epochs of the Ray driver on three hosts with slow links between them.

The hosts are network namespaces with links of 1 Gb/s and 5 ms; the server has one of them, and four workers share the
others. Computing is a timed wait, so that links are compared and not the cores of this machine. The link is calibrated
through the driver's own path first. `python -m benchmarks.slow_links ADDRESS SETTINGS` runs on the first host.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

from benchmarks.hosts import GBIT, hosts
from benchmarks.options import Options
from benchmarks.ray_hosts import START_WITHIN_S, ray_on
from benchmarks.table import show, show_table
from paceline.free_memory import free_memory_bytes

BAR = 0.15
"""Largest relative error of a predicted epoch."""
APART = 0.2
"""Strategies that are predicted further apart should be measured in the same order."""
HOSTS, WORKERS = 3, 4
DELAY_S = 0.005
STRATEGIES = ("sync", "downpour", "mixed", "diloco")
LOCAL_STEPS = 8
"""Of `diloco`, whose 500 would take an epoch of minutes."""
EPOCHS = 3
BATCHES = {1: 64, 25: 32, 250: 32}
"""Per epoch, by megabytes of parameters; whole rounds of local steps, since an epoch ends with an exchange."""
STORE_BYTES = 3_000_000_000
COPIES = 72
"""Of the parameters in this machine's memory: about ten at each worker, as many in each host's object store."""


@dataclass(frozen=True)
class Found:
    megabytes: int
    strategy: str
    predicted_s: float
    measured_s: float

    @property
    def error(self) -> float:
        return self.predicted_s / self.measured_s - 1


@dataclass(frozen=True)
class Comparison:
    latency_s: float
    bandwidth: float
    """Of a link, as it was calibrated."""
    found: tuple[Found, ...]

    @property
    def misordered(self) -> list[tuple[Found, Found]]:
        """Pairs of strategies that were predicted clearly apart and measured in the other order."""
        return [
            (one, other)
            for one, other in combinations(sorted(self.found, key=lambda each: each.predicted_s), 2)
            if one.megabytes == other.megabytes
            and other.predicted_s > (1 + APART) * one.predicted_s
            and other.measured_s < one.measured_s
        ]


def compare(sizes: Sequence[int], strategies: Sequence[str], epochs: int = EPOCHS) -> Comparison:
    """Raises `PermissionError` where network namespaces are not permitted."""
    with hosts(HOSTS, GBIT, DELAY_S) as made, ray_on(made, WORKERS // (HOSTS - 1), STORE_BYTES) as address:
        settings = json.dumps({"sizes": list(sizes), "strategies": list(strategies), "epochs": epochs})
        command = made[0].command(sys.executable, "-m", "benchmarks.slow_links", address, settings)
        said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    link, *found = (json.loads(line) for line in said)
    return Comparison(*link, tuple(Found(**each) for each in found))


def fitting(sizes: Sequence[int]) -> tuple[int, ...]:
    """The sizes for which this machine has enough free memory."""
    free = free_memory_bytes()
    return tuple(size for size in sizes if COPIES * size * 1_000_000 <= free)


def run(options: Options) -> dict[str, Any]:
    if importlib.util.find_spec("ray") is None:
        show("Ray is not installed: pip install 'paceline[ray]'")
        return {}
    asked = (1,) if options.quick else tuple(BATCHES)
    sizes = fitting(asked)
    for size in set(asked) - set(sizes):
        show(f"Skipped: {size} MB of parameters need {COPIES * size / 1000:.0f} GB of free memory")
    try:
        found = compare(sizes, STRATEGIES, 2 if options.quick else EPOCHS)
    except PermissionError as error:
        show(f"Skipped: {error}")
        return {}
    rows = [
        [
            f"{each.megabytes} MB", each.strategy, f"{each.predicted_s:.2f}", f"{each.measured_s:.2f}",
            f"{100 * each.error:+.0f} %", "PASS" if abs(each.error) <= BAR else f"above {100 * BAR:.0f} %",
        ]
        for each in found.found
    ]  # fmt: skip
    show_table(
        f"{WORKERS} workers on {HOSTS - 1} hosts, the server on another, links of 1 Gb/s and {1e3 * DELAY_S:g} ms "
        f"(calibrated: {8e-9 * found.bandwidth:.2f} Gb/s, {1e3 * found.latency_s:.1f} ms)",
        ["parameters", "strategy", "predicted, s/epoch", "measured, s/epoch", "error", f"bar {100 * BAR:.0f} %"],
        rows,
    )
    for one, other in found.misordered:
        show(f"{one.megabytes} MB: {one.strategy} was predicted faster than {other.strategy}, and was slower")
    return asdict(found)


# On the first host


def _main(address: str, settings: str) -> None:
    import ray

    from paceline.training.drivers.ray.node_links import measure_node_link

    asked = json.loads(settings)
    ray.init(address=address, log_to_driver=False, logging_level="ERROR", configure_logging=False)
    latest_s = time.monotonic() + START_WITHIN_S
    while sum(node["Alive"] for node in ray.nodes()) < HOSTS and time.monotonic() < latest_s:
        time.sleep(0.1)
    speed = measure_node_link(ray)
    link = (speed.latency_s, speed.bandwidth)
    print(json.dumps(link), flush=True)
    for size in asked["sizes"]:
        for name in asked["strategies"]:
            found = Found(size, name, predicted_s(size, name, *link), measured_s(size, name, asked["epochs"]))
            print(json.dumps(asdict(found)), flush=True)


def _strategy(name: str) -> Any:
    from paceline.strategy.presets import find_strategy

    local = {"push_every": LOCAL_STEPS, "fetch_every": LOCAL_STEPS} if name == "diloco" else {}
    return find_strategy(name, **local)


def predicted_s(megabytes: int, strategy: str, latency_s: float, bandwidth: float) -> float:
    """Seconds per epoch, if a step takes the timed wait."""
    from benchmarks.timed_network import COMPUTE_S
    from paceline.cluster import Device, DeviceCount, Link, Machine
    from paceline.cost.prediction import Prediction
    from paceline.simulation.on_cluster import simulate_on

    step = Prediction(
        name="timed", batch=1, device="CPU", step="plain", precision="float32", threads=1,
        iteration_s=COMPUTE_S, low_s=COMPUTE_S, high_s=COMPUTE_S, parts_s={}, layers=(), roofline_s=0.0,
        memory_bytes=0, parameter_bytes=1_000_000 * megabytes, samples=BATCHES[megabytes], basis="a timed wait",
        conditions={"optimizer": "sgd"},
    )  # fmt: skip
    machine = Machine("host", (DeviceCount(Device("CPU", "cpu")),))
    outcome = simulate_on(
        step, machine, WORKERS, _strategy(strategy), network=Link("calibrated", latency_s, bandwidth),
        workers_per_machine=WORKERS // (HOSTS - 1), driver="ray",
    )  # fmt: skip
    return outcome.epoch_s


def measured_s(megabytes: int, strategy: str, epochs: int) -> float:
    """Seconds per epoch, without the first."""
    from benchmarks.server import Steady
    from paceline.training.drivers.ray import launcher
    from paceline.workload import resolve

    given = {
        "data": f"synthetic:1x2x2/2:{BATCHES[megabytes]}", "epochs": epochs, "batch": 1, "device": "cpu", "threads": 1,
        "optimizer": "sgd", "lr": 1e-6,
    }  # fmt: skip
    watcher = Steady()
    workload = resolve(f"benchmarks.timed_network:of_{megabytes}_mb", given)
    launcher.run(workload, _strategy(strategy), workers=WORKERS, watcher=watcher)
    return watcher.seconds_an_epoch


if __name__ == "__main__":
    _main(*sys.argv[1:])
