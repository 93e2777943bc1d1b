"""What a plan promises: its pick is the best, or nearly, of simulating everything; it fits; it comes soon.

Nothing of the search is used to check it. Every candidate that fits is predicted and simulated one by one, time and
money follow from that by the arithmetic of docs/howto/plan.md, and the best of them stands beside the pick.
"""

from __future__ import annotations

import math
import random
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from statistics import mean
from time import perf_counter
from typing import Any

from benchmarks.options import Options
from benchmarks.table import show, show_table
from paceline.cluster import (
    Cluster,
    Device,
    DeviceCount,
    Machine,
    MachineCount,
    find_device,
    find_link,
    find_machine,
    known_devices,
)
from paceline.cost.prediction import Prediction
from paceline.errors import PacelineError
from paceline.planning.candidate import Candidate
from paceline.planning.candidates import list_candidates
from paceline.planning.machine_options import MachineOption, options_of
from paceline.planning.objective import Objective
from paceline.planning.planning import default_predict, default_simulate, make_plan
from paceline.planning.protocols import SimulationResult
from paceline.planning.search import steps_of
from paceline.simulation.on_cluster import simulate_on
from paceline.strategy.presets import find_strategy
from paceline.workload import Workload, resolve

CLUSTERS = 10
EPOCHS = 30
NETWORKS = {
    "dnn": "synthetic:1x28x28/10:55000",
    "lenet5": "synthetic:1x28x28/10:60000",
    "resnet20": "synthetic:3x32x32/10:50000",
    "alexnet": "synthetic:3x224x224/1000:100000",
    "resnet18": "synthetic:3x224x224/1000:1281167",
    "resnet50": "synthetic:3x224x224/1000:1281167",
    "vgg11": "synthetic:3x224x224/1000:200000",
}
NETWORK_LINKS = ("1 Gb/s Ethernet", "10 Gb/s Ethernet", "25 Gb/s Ethernet", "100 Gb/s Ethernet", "400 Gb/s InfiniBand")
WORST, MOST_SIMULATED, SLOWEST_S, MOST_GROWTH = 0.01, 0.20, 30.0, 0.015


def run(options: Options) -> dict[str, Any]:
    return {
        "clusters": _clusters(2 if options.quick else CLUSTERS),
        "memory": _memory(4 if options.quick else 24),
        "catalogue": _catalogue(("resnet18",) if options.quick else ("dnn", "resnet50", "vgg16", "transformer")),
        "growth": _growth(1 if options.quick else 5),
    }


# The pick beside the best of everything


def _drawn_cluster(chance: random.Random, number: int) -> Cluster:
    """Two to four kinds of machines with devices and links of the catalogue, and prices that follow what one gets."""
    gpus = [device for device in known_devices() if device.kind == "gpu"]
    cpus = [device for device in known_devices() if device.kind == "cpu"]
    machines = []
    for kind in range(chance.choice((2, 3, 4))):
        device = chance.choice(gpus if chance.random() < 0.75 else cpus)
        devices = chance.choice((1, 1, 2, 4, 8) if device.kind == "gpu" else (1, 2))
        price = 0.05 + devices * (device.peak.float32 or 1e12) / 2e13 * chance.uniform(0.5, 2)
        machine = Machine(
            f"{device.name} {'abcd'[kind]}", (DeviceCount(device, devices),), vcpus=devices * max(8, device.cores or 8),
            memory_bytes=devices * (64 << 30), host_device=find_link("PCIe 4.0 x16"),
            device_device=find_link("NVLink 3") if devices > 1 and chance.random() < 0.4 else None,
            price_per_hour=round(price, 3), price_date="2026-01",
        )  # fmt: skip
        machines.append(MachineCount(machine, chance.choice((1, 2, 3, 4, 6, 8))))
    return Cluster(f"cluster {number}", tuple(machines), find_link(chance.choice(NETWORK_LINKS)))


@dataclass(frozen=True)
class Simulated:
    """A candidate, and what its own simulation comes to."""

    candidate: Candidate
    time_s: float
    money: float
    under_way: float
    near: bool
    """Whether it is near enough to the workload to be picked without training anything."""


class Remembered:
    """Predictions and simulations, each made once; who asks for one is counted all the same."""

    def __init__(self, workload: Workload) -> None:
        self._predict, self._simulate = default_predict(workload), default_simulate()
        self._predictions: dict[tuple[int, str, str], Prediction | PacelineError] = {}
        self._outcomes: dict[tuple[Any, ...], SimulationResult] = {}
        self.asked: set[tuple[Any, ...]] = set()

    def predict(self, workload: Workload, device: Device) -> Prediction:
        key = workload.batch, workload.precision, device.name
        if key not in self._predictions:
            try:
                self._predictions[key] = self._predict(workload, device)
            except PacelineError as error:
                self._predictions[key] = error
        found = self._predictions[key]
        if isinstance(found, PacelineError):
            raise found
        return found

    def simulate(
        self, prediction: Prediction, machine: Machine, workers: int, strategy: Any, **how: Any
    ) -> SimulationResult:
        batch, precision = prediction.batch, prediction.precision
        key = machine.name, prediction.device, batch, precision, workers, strategy, how["workers_per_machine"]
        self.asked.add(key)
        if key not in self._outcomes:
            self._outcomes[key] = self._simulate(prediction, machine, workers, strategy, **how)
        return self._outcomes[key]


def _everything(workload: Workload, cluster: Cluster, known: Remembered) -> list[Simulated]:
    """Every candidate that can be predicted and fits, simulated."""
    places = options_of(cluster)
    samples = known.predict(workload, places.places[0].device).samples
    listed = list_candidates(workload, places, samples)
    found = []
    for candidate, place in zip(listed.candidates, listed.places, strict=True):
        try:
            asked = replace(workload, batch=candidate.batch, precision=candidate.precision)
            prediction = known.predict(asked, place.device)
        except PacelineError:
            continue
        if _fits(candidate, place, prediction):
            found.append(_simulated(candidate, place, prediction, workload, known))
    return found


def _fits(candidate: Candidate, place: MachineOption, prediction: Prediction) -> bool:
    """Into nine tenths of the device's memory; workers on CPUs share their machine's, with slots and a server."""
    workers, parameters = min(candidate.workers, candidate.workers_per_machine), prediction.parameter_bytes
    if place.device.kind == "gpu":
        return prediction.memory_bytes <= 0.9 * (place.device.memory_bytes or math.inf)
    together = candidate.machines == 1
    served = candidate.workers > 1 and (together or candidate.strategy.groups != 1)
    slots = workers * 4 * parameters + (8 * parameters if together else 0)
    needed = workers * prediction.memory_bytes + (slots if served else 0)
    return needed <= 0.9 * (place.machine.memory_bytes or math.inf)


def _simulated(
    candidate: Candidate, place: MachineOption, prediction: Prediction, workload: Workload, known: Remembered
) -> Simulated:
    """An epoch is over when as many samples were applied as there are; every machine is paid for all the time."""
    outcome = known.simulate(
        prediction, place.machine, candidate.workers, candidate.strategy, network=place.network,
        workers_per_machine=candidate.workers_per_machine, steps=steps_of(candidate),
    )  # fmt: skip
    time_s = EPOCHS * max(outcome.epoch_s, prediction.samples / outcome.samples_per_s)
    money = time_s * outcome.machines * (place.machine.price_per_hour or 0.0) / 3600
    rule = candidate.strategy
    under_way = candidate.workers * candidate.batch * max(1, rule.push_every, rule.fetch_every) / workload.batch
    corrected = candidate.workers == 1 or rule.groups == 1 or rule.correction != "none"
    return Simulated(candidate, time_s, money, under_way, under_way <= (16 if corrected else 8))


def _wishes(
    everything: list[Simulated], chance: random.Random
) -> Iterator[tuple[str, Objective, Callable[..., float]]]:
    """(words, wish, what the best has least of)."""
    fastest, cheapest = min(one.time_s for one in everything), min(one.money for one in everything)
    yield "neither", Objective(epochs=EPOCHS), lambda one: one.time_s * one.money
    deadline_s, budget = fastest * chance.uniform(1.5, 10), cheapest * chance.uniform(1.2, 5)
    yield "deadline", Objective(epochs=EPOCHS, deadline_s=deadline_s), lambda one: one.money
    yield "budget", Objective(epochs=EPOCHS, budget=budget), lambda one: one.time_s


def _best(everything: list[Simulated], objective: Objective, value: Callable[..., float]) -> float:
    """Of those that keep the wish and are near to the workload; if there is none, of all that keep it."""
    deadline_s, budget = objective.deadline_s or math.inf, objective.budget or math.inf
    kept = [one for one in everything if one.time_s <= deadline_s and one.money <= budget]
    return min(value(one) for one in [one for one in kept if one.near] or kept)


def _clusters(count: int) -> list[dict[str, Any]]:
    found, rows = [], []
    for number in range(count):
        chance = random.Random(2026 + number)
        cluster = _drawn_cluster(chance, number + 1)
        network = chance.choice(list(NETWORKS))
        workload = resolve(network, {"data": NETWORKS[network]})
        known = Remembered(workload)
        everything = _everything(workload, cluster, known)
        for words, objective, value in _wishes(everything, chance):
            known.asked.clear()
            plan = make_plan(workload, options_of(cluster), objective, predict=known.predict, simulate=known.simulate)
            best = _best(everything, objective, value)
            row = {
                "cluster": cluster.name, "network": network, "wish": words, "candidates": len(everything),
                "simulated": len(known.asked), "share": len(known.asked) / len(everything), "pick": str(plan.pick),
                "pick_s": plan.pick.time_s, "pick_money": plan.pick.money, "gap": value(plan.pick) / best - 1,
            }  # fmt: skip
            found.append(row)
            rows.append([
                f"{number + 1}: {network}, {words}", f"{len(everything):,}", f"{row['simulated']}",
                f"{row['share']:.1%}", row["pick"], f"{value(plan.pick):.4g}", f"{best:.4g}", f"{row['gap']:+.2%}",
            ])  # fmt: skip
    columns = ["cluster", "candidates", "simulated", "share", "pick", "value", "best of all", "gap"]
    show_table("The pick beside the best of simulating everything (value: s × USD, USD or s, as wished)", columns, rows)
    gap, share = max(row["gap"] for row in found), max(row["share"] for row in found)
    show(f"largest gap {gap:.2%} (at most {WORST:.0%} wanted), share {share:.1%} (at most {MOST_SIMULATED:.0%})")
    return found


# What fits


def _memory(cases: int) -> dict[str, Any]:
    """Devices whose memory is about what a workload needs at one of the batches: all that is shown must fit."""
    checked, left_out, tight = 0, 0, 1.0
    names = ("resnet50", "vgg16", "alexnet", "transformer")
    for number in range(cases):
        chance = random.Random(7000 + number)
        network = chance.choice(names)
        workload = resolve(network, {"batch": chance.choice((8, 16, 48, 64, 96))})
        known = Remembered(workload)
        sheet = find_device(chance.choice(("A100 40GB", "L4", "V100", "GTX 1080")))
        batch = int(workload.batch * chance.choice((0.5, 1, 2, 4)))
        needed = known.predict(replace(workload, batch=batch), sheet).memory_bytes
        device = replace(sheet, name=f"{sheet.name} cut", memory_bytes=int(needed / 0.9 * chance.uniform(0.97, 1.03)))
        machine = Machine(
            "box", (DeviceCount(device, 2),), memory_bytes=256 << 30, host_device=find_link("PCIe 4.0 x16"),
            network=find_link("25 Gb/s Ethernet"), price_per_hour=1.0,
        )  # fmt: skip
        cluster = Cluster("one kind", (MachineCount(machine, 3),))
        try:
            plan = make_plan(workload, options_of(cluster), Objective(epochs=1), predict=known.predict)
        except PacelineError:
            left_out += 1
            continue
        for one in plan.simulated:
            asked = replace(workload, batch=one.candidate.batch, precision=one.candidate.precision)
            share = known.predict(asked, device).memory_bytes / (device.memory_bytes or 1)
            assert share <= 0.9, f"{one} needs {share:.1%} of the memory"
            checked, tight = checked + 1, min(tight, 0.9 - share)
    show(
        f"Memory: {checked} proposals for {cases} devices whose memory is within 3 % of what a batch needs all fit; "
        f"the nearest has {tight:.2%} of the memory to spare beside the tenth that is kept free; "
        f"{left_out} had nothing that fits"
    )
    return {"proposals": checked, "nothing_fits": left_out, "nearest": tight}


# How soon


def _catalogue(networks: tuple[str, ...]) -> list[dict[str, Any]]:
    """The command as one types it, from starting Python to its last line."""
    found, rows = [], []
    for network in networks:
        command = [sys.executable, "-m", "paceline", "plan", network, "--cluster", "catalogue", "--deadline", "30d"]
        start_s, before = perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        took_s, after = perf_counter() - start_s, resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        found.append({"network": network, "seconds": took_s, "cpu_seconds": cpu_s, "code": ended.returncode})
        answer = ended.stdout.partition("; ")[2].partition("\n")[0] or ended.stderr.strip()
        rows.append([network, f"{took_s:.1f}", f"{cpu_s:.1f}", answer])
    columns = ["network", "s", "of a core", "answer"]
    show_table(f"The whole catalogue, whole command (at most {SLOWEST_S:.0f} s)", columns, rows)
    return found


# A published scaling


def _growth(seeds: int) -> list[dict[str, Any]]:
    """784-64-64-10, each worker with a pass of its own over 55,000 samples, 4.1 ms a step, on the study's machines."""
    found, rows = [], []
    step = Prediction(
        "dnn", 64, "n1 vCPU", "flat", "float32", 1, 4.1e-3, 3.7e-3, 4.5e-3, {}, (), 0.0, 0, 4 * 55_050, 55_000, "given"
    )  # fmt: skip
    exchanges = (("n1-standard-8 2017", 1), ("n1-highmem-16 2017", 1), ("n1-standard-1 2017", 10))
    for name, every in exchanges:
        machine = find_machine(name)
        for strategy in ("downpour", "delay-compensated"):
            rule = find_strategy(strategy, push_every=every, fetch_every=every)
            epochs = [
                mean(
                    simulate_on(
                        step, machine, n, replace(rule, full_pass_per_worker=True), network=machine.network, seed=seed
                    ).epoch_s
                    for seed in range(seeds)
                )
                for n in (3, 7, 11)
            ]
            growth = max(epochs) / epochs[0] - 1
            found.append({"machine": name, "strategy": strategy, "exchange_every": every, "epochs_s": epochs})
            rows.append([name, strategy, str(every), *(f"{s:.3f}" for s in epochs), f"{growth:+.2%}"])
    columns = ["machine", "strategy", "exchange every", "3 workers", "7", "11", "grows by"]
    show_table(f"Seconds an epoch, each worker over all data (at most {MOST_GROWTH:.1%} growth)", columns, rows)
    return found
