"""The local parameter server: against one process, against Ray's documented pattern, and against a memory copy."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from time import perf_counter
from typing import Any

import torch

from benchmarks.ddp import ddp_samples_per_s
from benchmarks.options import Options, digits_of_28
from benchmarks.ray_server import ray_updates_per_s
from benchmarks.rounds import Spread, how_many, interleave, ratios
from benchmarks.table import show, show_table, verdict
from benchmarks.update_threads import WAYS, update_times
from paceline import data
from paceline.data.dataset import Arrays, Dataset
from paceline.step.build import assemble, load_data
from paceline.step.flat import FlatStep
from paceline.step.optimizers import Rule
from paceline.step.tally import Tally
from paceline.strategy.layout import Layout, PhaseLayout
from paceline.strategy.presets import find_strategy
from paceline.strategy.updater import Updater
from paceline.training.drivers.local import launcher
from paceline.training.drivers.local.preparation import sizes_of
from paceline.training.drivers.local.shared_memory import SharedMemory
from paceline.training.drivers.local.store import SharedStore
from paceline.training.run import Run
from paceline.training.watcher import Silent
from paceline.workload import Workload, resolve

BARS = {"downpour": 1.5, "delay-compensated": 1.3, "sync": 1.3}
"""Of one process's steps per second."""
BAR_RAY, BAR_COPY, BAR_DDP = 20.0, 0.5, 1.0
PEERS = ("lenet5", "resnet20")
"""Networks that compute long enough for DistributedDataParallel to be at its best."""
WORKERS = 2
ALEXNET = 61_100_840
THREADS = (1, 2)


def few_tests() -> Dataset:
    """MNIST's 55,000 training samples with few to test on: steps are compared here, not tests."""
    whole = data.load(digits_of_28(55_000))
    assert isinstance(whole.test, Arrays)
    return replace(whole, test=whole.test.first(100))


def few_samples() -> Dataset:
    """The first 3,200 of them, for networks whose epoch takes long."""
    whole = few_tests()
    assert isinstance(whole.train, Arrays)
    return replace(whole, train=whole.train.first(3_200))


def workload(epochs: int, network: str = "dnn", samples: str = "few_tests") -> Workload:
    """As it is by default: `dnn` with momentum, L2 and dropout."""
    settings = {"data": f"benchmarks.server:{samples}", "epochs": epochs, "batch": 64, "device": "cpu", "threads": 1}
    return resolve(network, settings)


class Steady(Silent):
    """Leaves out the first epoch, in which processes, caches and memory warm up."""

    def begun(self, run: Run, notes: list[str]) -> None:
        self.times: list[float] = []

    def finished_epoch(self, epoch: Any, run: Run) -> None:
        self.times.append(epoch.wall_s)

    @property
    def seconds_an_epoch(self) -> float:
        return sum(self.times[1:]) / len(self.times[1:])


def updates_per_s(strategy: str, epochs: int, workers: int = WORKERS) -> float:
    """Of a whole run with several workers; for groups of one an update is a step."""
    watcher = Steady()
    run = launcher.run(workload(epochs), find_strategy(strategy), workers=workers, watcher=watcher)
    return run.updates / epochs / watcher.seconds_an_epoch


def sync_samples_per_s(network: str, epochs: int) -> float:
    watcher = Steady()
    launcher.run(workload(epochs, network, "few_samples"), find_strategy("sync"), workers=WORKERS, watcher=watcher)
    return 3_200 / watcher.seconds_an_epoch


def one_process_steps_per_s(epochs: int) -> float:
    made = workload(epochs)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    parts = assemble(made, load_data(made), torch.device("cpu"))
    step = FlatStep(parts)
    times = []
    for epoch in range(epochs):
        step.begin(epoch)
        tally = Tally(made.top)
        start_s = perf_counter()
        step.advance(parts.updates_per_epoch, tally)
        tally.read()
        times.append(perf_counter() - start_s)
    step.close()
    torch.set_num_threads(before)
    return parts.updates_per_epoch * (epochs - 1) / sum(times[1:])


def exchange_rates(numbers: int, repeats: int) -> dict[str, float]:
    """Gigabytes per second of a plain copy, a pull and a push, one thread each, medians."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    strategy = find_strategy("downpour")
    layout = Layout((PhaseLayout(Rule("sgd", 1e-3), (("all", (numbers,)),)),), 0, 1, 1, "float32")
    updater = Updater(strategy, layout, 1)
    sizes = sizes_of(strategy, layout, 1, record_events=False, workers_commit=False)
    memory = SharedMemory(sizes)
    store = SharedStore(memory, 1, updater)
    source, target = torch.ones(numbers), torch.zeros(numbers)
    found: dict[str, list[float]] = {"copy": [], "pull": [], "push": []}
    actions: dict[str, Callable[[], object]] = {
        "copy": lambda: target.copy_(source),
        "pull": lambda: store.read(target),
        "push": lambda: memory.payloads[0][0].copy_(source),
    }
    for _ in range(repeats + 1):  # the first touches the memory
        for name, act in actions.items():
            start_s = perf_counter()
            act()
            found[name].append(4 * numbers / (perf_counter() - start_s) / 1e9)
    memory.close()
    torch.set_num_threads(before)
    return {name: sorted(rates[1:])[len(rates[1:]) // 2] for name, rates in found.items()}


def run(options: Options) -> dict[str, Any]:
    epochs = 3 if options.quick else 12
    measures: dict[str, Any] = {
        "one process": lambda: one_process_steps_per_s(epochs),
        "downpour": lambda: updates_per_s("downpour", epochs),
        "delay-compensated": lambda: updates_per_s("delay-compensated", epochs),
        "sync": lambda: WORKERS * updates_per_s("sync", epochs),
    }
    if ray_updates_per_s(2) is not None:
        measures["ray"] = lambda: ray_updates_per_s(60 if options.quick else 400)
    rounds = how_many(options.rounds, options.quick, 25.0, 150.0)
    found = interleave(measures, rounds)
    rows = []
    for name, rates in found.items():
        against = ratios(rates, found["one process"])
        row = [name, f"{Spread.of(rates).median:,.0f}", Spread.of(against).text()]
        row.append(f"{BARS[name]:g}: {verdict(Spread.of(against).median, BARS[name])}" if name in BARS else "")
        if "ray" in found:
            of_ray = Spread.of(ratios(rates, found["ray"]))
            row += [of_ray.text(1), verdict(of_ray.median, BAR_RAY) if name == "downpour" else ""]
        rows.append(row)
    columns = ["dnn, batch 64, 1 thread", "steps/s", "of one process", "bar"]
    show_table(
        f"{WORKERS} workers and a server on {len(os.sched_getaffinity(0))} cores, {rounds} rounds",
        columns + (["of Ray's pattern", f"bar {BAR_RAY:g}"] if "ray" in found else []),
        rows,
    )
    if "ray" not in found:
        show("Ray is not installed: pip install 'paceline[ray]' to compare with its parameter-server pattern.")
    peers = _show_peers(2 if options.quick else 5, 2 if options.quick else 4)
    numbers = 1_000_000 if options.quick else ALEXNET
    rates = exchange_rates(numbers, 9)
    rows = [
        [
            name,
            f"{rate:.2f}",
            f"{rate / rates['copy']:.2f}",
            "" if name == "copy" else verdict(rate / rates["copy"], 0.5),
        ]
        for name, rate in rates.items()
    ]
    show_table("Exchange of AlexNet's parameters, 1 thread", ["", "GB/s", "of a copy", f"bar {BAR_COPY:g}"], rows)
    return {"steps_per_s": found, "sync_of_ddp": peers, "exchange_gb_per_s": rates, "update_s": _show_updates(numbers)}


def _show_peers(rounds: int, epochs: int) -> dict[str, list[float]]:
    """`sync` against DistributedDataParallel, in interleaved rounds."""
    against, rows = {}, []
    for network in PEERS:
        steps = 25 * (epochs - 1)
        found = interleave(
            {
                "ddp": lambda n=network, s=steps: ddp_samples_per_s(n, 64, s),
                "sync": lambda n=network: sync_samples_per_s(n, epochs),
            },
            rounds,
        )
        against[network] = ratios(found["sync"], found["ddp"])
        ratio = Spread.of(against[network])
        rates = [f"{Spread.of(found[name]).median:,.0f}" for name in ("sync", "ddp")]
        rows.append([network, *rates, ratio.text(), verdict(ratio.median, BAR_DDP)])
    columns = ["batch 64, 1 thread", "sync, samples/s", "DDP (gloo), samples/s", "of DDP", f"bar {BAR_DDP:g}"]
    show_table(f"{WORKERS} synchronous workers, {rounds} rounds", columns, rows)
    return against


def _show_updates(numbers: int) -> dict[str, dict[int, list[float]]]:
    found = {way: update_times(way, numbers, THREADS, 9) for way in WAYS}
    rows = []
    for way, times in found.items():
        for threads, took_s in times.items():
            against = Spread.of(ratios(times[1], took_s))
            row = [way, str(threads), Spread.of([1e3 * s for s in took_s]).text(1)]
            rows.append([*row, against.text() if threads > 1 else ""])
    title = f"An update of AlexNet's parameters, {len(os.sched_getaffinity(0))} cores"
    show_table(title, ["", "threads", "ms", "times as fast as one"], rows)
    return found
