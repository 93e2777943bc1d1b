"""The Ray driver against Ray's own patterns: its parameter server, Ray Train, and the object store."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.options import Options
from benchmarks.ray_bandwidth import driver_gb_per_s, put_gb_per_s
from benchmarks.ray_server import ray_updates_per_s
from benchmarks.ray_train import trainer_samples_per_s
from benchmarks.rounds import Spread, how_many, interleave, ratios
from benchmarks.server import ALEXNET, WORKERS, Steady, workload
from benchmarks.table import show, show_table, verdict
from paceline.strategy.presets import find_strategy

BARS = {"downpour": 5.0, "delay-compensated": None}
"""Of the updates/s of Ray's pattern."""
BAR_TRAIN, BAR_STORE = 0.9, 0.5
PEERS = {"dnn": ("few_tests", 55_000), "lenet5": ("few_samples", 3_200)}
"""Networks that are compared with Ray Train, and the samples of an epoch."""
STORE_BYTES = 300 << 20
SHARDS = (2, 4)


@contextmanager
def cluster(nodes: int, store_bytes: int = STORE_BYTES) -> Iterator[list[str]]:
    """The ids of its nodes, all on this machine."""
    import ray
    from ray.cluster_utils import Cluster

    node = {"num_cpus": WORKERS + 1, "object_store_memory": store_bytes, "include_dashboard": False}
    made = Cluster(initialize_head=True, head_node_args=node)
    for _ in range(nodes - 1):
        made.add_node(**node)
    ray.init(address=made.address, log_to_driver=False, logging_level="ERROR")
    try:
        yield [found["NodeID"] for found in ray.nodes()]
    finally:
        ray.shutdown()
        made.shutdown()


def driver_updates_per_s(strategy: str, epochs: int) -> float:
    """Without the first epoch, in which processes and caches warm up."""
    from paceline.training.drivers.ray import launcher

    watcher = Steady()
    run = launcher.run(workload(epochs), find_strategy(strategy), workers=WORKERS, watcher=watcher)
    return run.updates / epochs / watcher.seconds_an_epoch


def sync_samples_per_s(network: str, epochs: int) -> float:
    from paceline.training.drivers.ray import launcher

    watcher, (samples, count) = Steady(), PEERS[network]
    launcher.run(workload(epochs, network, samples), find_strategy("sync"), workers=WORKERS, watcher=watcher)
    return count / watcher.seconds_an_epoch


def run(options: Options) -> dict[str, Any]:
    if importlib.util.find_spec("ray") is None:
        show("Ray is not installed: pip install 'paceline[ray]'")
        return {}
    rounds = how_many(options.rounds, options.quick, 25.0, 120.0)
    with cluster(1):
        updates = _show_updates(rounds, options.quick)
        trained = _show_train(rounds, options.quick, "one node")
    with cluster(3):
        trained_on_three = _show_train(rounds, options.quick, "three nodes of one machine")
    numbers = 1_000_000 if options.quick else ALEXNET
    with cluster(2, 2 * STORE_BYTES if options.quick else 8 * 4 * numbers) as nodes:
        moved = _show_bandwidth(rounds, numbers, nodes)
    return {
        "updates_per_s": updates, "samples_per_s": trained, "samples_per_s_on_three_nodes": trained_on_three,
        "gb_per_s": moved,
    }  # fmt: skip


def _show_updates(rounds: int, quick: bool) -> dict[str, list[float]]:
    measures: dict[str, Any] = {"Ray's pattern": lambda: ray_updates_per_s(60 if quick else 200)}
    for name in BARS:
        measures[name] = lambda name=name: driver_updates_per_s(name, 2 if quick else 3)
    found = interleave(measures, rounds)
    rows = []
    for name, rates in found.items():
        against, bar = Spread.of(ratios(rates, found["Ray's pattern"])), BARS.get(name)
        met = verdict(against.median, bar) if bar else ""
        rows.append([name, f"{Spread.of(rates).median:,.0f}", against.text(1), met])
    show_table(
        f"{WORKERS} workers and a server as Ray actors on one machine, dnn, batch 64, {rounds} rounds",
        ["strategy", "updates/s", "of Ray's pattern", "bar 5"],
        rows,
    )
    return found


def _show_train(rounds: int, quick: bool, where: str) -> dict[str, dict[str, list[float]]]:
    """`sync` against Ray Train with DistributedDataParallel."""
    whole, rows = {}, []
    for network in PEERS:
        epochs = 2 if quick or network == "dnn" else 4
        found = whole[network] = interleave(
            {
                "Ray Train": lambda n=network: trainer_samples_per_s(n, 64, 50 if n == "lenet5" else 300, WORKERS),
                "sync": lambda n=network, e=epochs: sync_samples_per_s(n, e),
            },
            rounds,
        )
        ratio = Spread.of(ratios(found["sync"], found["Ray Train"]))
        rates = [f"{Spread.of(found[name]).median:,.0f}" for name in ("sync", "Ray Train")]
        rows.append([network, *rates, ratio.text(), verdict(ratio.median, BAR_TRAIN)])
    show_table(
        f"Synchronous training on {where}, batch 64, {WORKERS} workers of 1 thread, {rounds} rounds",
        ["network", "sync, samples/s", "TorchTrainer with DDP (gloo)", "of it", f"bar {BAR_TRAIN:g}"],
        rows,
    )
    return whole


def _show_bandwidth(rounds: int, numbers: int, nodes: list[str]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for _ in range(rounds):
        found.setdefault("ray.put", []).append(put_gb_per_s(numbers, 5))
        for where, server, shards in (
            ("same node", nodes[0], 1),
            ("other node", nodes[1], 1),
            *((f"{count} shards on both nodes", nodes[0], count) for count in SHARDS),
        ):
            for name, rate in driver_gb_per_s(numbers, 5, (server, nodes[0]), shards).items():
                found.setdefault(f"{name}, {where}", []).append(rate)
    rows = []
    for name, rates in found.items():
        ratio = Spread.of(ratios(rates, found["ray.put"]))
        met = "" if name == "ray.put" else verdict(ratio.median, BAR_STORE)
        rows.append([name, f"{Spread.of(rates).median:.2f}", ratio.text(), met])
    show_table(
        f"{numbers:,} parameters between a worker and the server, {rounds} rounds",
        ["", "GB/s", "of ray.put", f"bar {BAR_STORE:g}"],
        rows,
    )
    return found
