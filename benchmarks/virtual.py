"""What the virtual driver shows and costs: staleness against error, scaling with few workers, ten thousand workers.

Asynchronous SGD, with and without delay compensation (Zheng et al. 2017), on 20,000 images of MNIST; then the time of
a worker's step with 3 to 11 workers, with copies and updates as long as they take here; then the simulator itself.
"""

from __future__ import annotations

import functools
import resource
import statistics
from time import perf_counter
from typing import Any

import torch

from benchmarks.options import Options, digits_of_28
from benchmarks.table import show, show_table
from paceline.simulation.durations import DurationDistribution
from paceline.simulation.simulation import simulate_time
from paceline.simulation.virtual_cluster import Network, VirtualCluster
from paceline.step.build import assemble, load_data
from paceline.step.tally import Tally
from paceline.strategy.gradient_mean import GroupContribution, Payload
from paceline.strategy.instructions import Apply, Compute, Contribution
from paceline.strategy.learner import Learner
from paceline.strategy.presets import find_strategy
from paceline.strategy.strategy import Strategy
from paceline.strategy.updater import Updater
from paceline.training.virtual_run import run_virtual
from paceline.workload import Workload, resolve

GAMMA_SHAPE = 100.0
SEEDS = 5
STEP_S = 4.1e-3
"""Of a published study with 4, 8 and 12 nodes, one of them the server."""
WORKERS = (3, 7, 11)
STEPS = 860  # 55,000 samples in batches of 64

ASYNCHRONOUS: dict[str, Strategy] = {
    "no correction": find_strategy("downpour"),
    "constant 2": find_strategy("delay-compensated", correction="constant:2"),
    "adaptive 2": find_strategy("delay-compensated", correction="adaptive:2"),
}


def run(options: Options) -> dict[str, Any]:
    return {
        "ten_thousand": _ten_thousand(options),  # first, since memory is counted by its peak
        "errors": _errors(options),
        "scaling": _scaling(options),
    }


def gamma(mean_s: float) -> DurationDistribution:
    return DurationDistribution("gamma", (GAMMA_SHAPE, mean_s / GAMMA_SHAPE))


def _errors(options: Options) -> list[dict[str, Any]]:
    """Test error by number of workers, at the median of several seeds."""
    seeds, counts = (1, (1, 4)) if options.quick else (SEEDS, (1, 8, 16, 32))
    data = digits_of_28(2_000 if options.quick else 20_000)
    found, rows = [], []
    for workers in counts:
        row = [str(workers)]
        for name, strategy in ASYNCHRONOUS.items():
            if workers == 1 and name != "no correction":
                row.append("")
                continue
            errors = [_error(data, strategy, workers, seed) for seed in range(seeds)]
            row.append(f"{statistics.median(errors):.1f} ({min(errors):.1f}–{max(errors):.1f})")
            found.append({"workers": workers, "correction": name, "errors": errors})
        rows.append(row)
    title = f"Test error, %, of 784-64-64-10 on {data}, plain SGD at 0.1, 3 epochs: median of {seeds} seeds (range)"
    show_table(title, ["workers", *ASYNCHRONOUS], rows)
    return found


def _error(data: str, strategy: Strategy, workers: int, seed: int) -> float:
    workload = resolve("dnn", {
        "data": data, "dropout": 0.0, "l2": 0.0, "schedule": "constant", "batch": 32, "epochs": 3,
        "optimizer": "sgd", "lr": 0.1, "seed": seed, "device": "cpu",
    })  # fmt: skip
    cluster = VirtualCluster(compute=gamma(1.0))
    made = run_virtual(workload, strategy, workers=workers, cluster=cluster, on_bad_gradient="skip")
    return 100 * (1 - made.test_accuracy)


def _scaling(options: Options) -> dict[str, Any]:
    """A worker's step with few and with more workers, each with a pass of its own over the data."""
    workload = resolve("dnn", {"data": digits_of_28(1_000), "batch": 64, "optimizer": "sgd", "device": "cpu"})
    costs = _costs(workload, 20 if options.quick else 400)
    show(
        f"measured here: a step {1e6 * costs['step']:.0f} µs, a copy of {costs['bytes']:,.0f} bytes "
        f"{1e6 * costs['copy']:.1f} µs, an update {1e6 * costs['none']:.1f} µs, with constant compensation "
        f"{1e6 * costs['constant:0.04']:.1f} µs, with adaptive {1e6 * costs['adaptive:2']:.1f} µs"
    )
    results: dict[str, Any] = {"costs": costs}
    for name, step_s in (("a published step of 4.1 ms", STEP_S), ("our own step", costs["step"])):
        epochs = {
            label: [_epoch_s(strategy, costs, step_s, workers, options.quick) for workers in WORKERS]
            for label, strategy in _compared().items()
        }
        rows = [
            [label, *(f"{s:.4f}" for s in seconds), f"{100 * (seconds[-1] / seconds[0] - 1):+.2f} %",
             f"{100 * (seconds[-1] / epochs['downpour'][-1] - 1):+.2f} %"]
            for label, seconds in epochs.items()
        ]  # fmt: skip
        columns = ["strategy", *(f"{w} workers" for w in WORKERS), f"{WORKERS[0]} to {WORKERS[-1]}", "against downpour"]
        show_table(f"Virtual seconds an epoch of {STEPS} steps, {name}", columns, rows)
        results[name] = epochs
    return results


def _compared() -> dict[str, Strategy]:
    return {
        "downpour": find_strategy("downpour", full_pass_per_worker=True),
        "constant compensation": find_strategy(
            "delay-compensated", correction="constant:0.04", full_pass_per_worker=True
        ),
        "adaptive compensation": find_strategy("delay-compensated", correction="adaptive:2", full_pass_per_worker=True),
    }


def _epoch_s(strategy: Strategy, costs: dict[str, float], step_s: float, workers: int, quick: bool) -> float:
    """With copies by each worker for itself and one server that takes one update after another."""
    cluster = VirtualCluster(
        compute=gamma(step_s),
        server=DurationDistribution("constant", (costs[strategy.correction],)),
        network=Network(bandwidth=costs["bytes"] / costs["copy"], shared=False),
    )
    steps = 50 if quick else STEPS
    found = simulate_time(strategy, workers, steps, cluster, message_bytes=int(costs["bytes"]), spans=0)
    return found.distribution.seconds * STEPS / steps


def _costs(workload: Workload, rounds: int) -> dict[str, float]:
    """Seconds of a step, a copy and an update here, medians."""
    parts = assemble(workload, load_data(workload), torch.device("cpu"))
    torch.set_num_threads(1)
    learner = Learner(parts, find_strategy("downpour"), 1)
    current, payload = learner.initial(), torch.zeros(learner.size)
    learner.bind(payload)
    tally = Tally(1)
    batches = parts.updates_per_epoch - 1
    tasks = iter([Compute(0, i + 1, 0, (i % batches,), (0,)) for i in range(rounds)])
    costs = {"bytes": float(learner.layout.size_bytes)}
    costs["step"] = _median_s(lambda: learner.run(next(tasks), lambda _: (0, current), payload, tally), rounds)
    other = torch.empty_like(current)
    costs["copy"] = _median_s(lambda: other.copy_(current), rounds)
    order = Apply(1, (Contribution(0, (Compute(0, 1, 0, (0,), (0,)),), 3),), 0, 0)
    for correction in ("none", "constant:0.04", "adaptive:2"):
        updater = Updater(find_strategy("delay-compensated", correction=correction), learner.layout, 1)
        kept, state = updater.initial_correction_state(), updater.initial_state()
        given = [GroupContribution([Payload(payload, 64, 1)], other, kept, kept)]
        update = functools.partial(updater.apply, order, given, current, torch.empty_like(current), state, state)
        costs[correction] = _median_s(update, rounds)
    learner.close()
    return costs


def _median_s(work: Any, rounds: int) -> float:
    times = []
    for _ in range(rounds):
        start_s = perf_counter()
        work()
        times.append(perf_counter() - start_s)
    return statistics.median(times)


def _ten_thousand(options: Options) -> list[dict[str, Any]]:
    workers, steps = (500, 20) if options.quick else (10_000, 100)
    found, rows = [], []
    for name in ("downpour", "stale-sync", "mixed", "backup"):
        start_s = perf_counter()
        made = simulate_time(find_strategy(name), workers, steps, VirtualCluster(compute=gamma(1.0))).distribution
        seconds = perf_counter() - start_s
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        found.append({"strategy": name, "seconds": seconds, "peak_bytes": peak, "updates": made.updates})
        rows.append([name, f"{seconds:.1f}", f"{made.steps / seconds:,.0f}", f"{peak / 1e6:.0f}", f"{made.updates:,}"])
    title = f"Simulating {workers:,} workers x {steps} steps (at most 30 s and 1,000 MB are wanted)"
    show_table(title, ["strategy", "s", "steps/s", "peak MB so far", "updates"], rows)
    return found
