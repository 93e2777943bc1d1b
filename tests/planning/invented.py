"""Clusters, workloads and predictions drawn at random, to plan for without predicting anything real."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from paceline.cluster import Cluster, Device, DeviceCount, Link, Machine, MachineCount, Peak
from paceline.cost.prediction import Prediction
from paceline.workload import Workload

WORKLOAD = Workload(network="mlp", data="digits", batch=64, epochs=10, optimizer="momentum")


@dataclass
class InventedPredictions:
    """An iteration is a fixed part, and arithmetic by the peak of the precision; calls are counted."""

    samples: int = 60_000
    parameter_bytes: int = 4_000_000
    flops: float = 3e9
    """Of a sample, forward and backward."""
    fixed_s: float = 1e-3
    kept_bytes: int = 20_000_000
    """Of a sample, for the backward pass."""
    interval: float = 0.1
    calls: int = 0

    def __call__(self, workload: Workload, device: Device, *, tensor: int | None = None) -> Prediction:
        """`tensor`: it has no layers that could be divided."""
        self.calls += 1
        peak = device.peak_of(workload.precision)
        assert peak is not None, f"{device.name} was asked for {workload.precision}"
        reached = 0.5 if workload.precision == "float32" else 0.25
        update_s = 0.02 * self.fixed_s
        iteration_s = self.fixed_s + workload.batch * self.flops / (reached * peak)
        return Prediction(
            name=workload.network, batch=workload.batch, device=device.name, step="flat", precision=workload.precision,
            threads=0 if device.kind == "gpu" else 1, iteration_s=iteration_s,
            low_s=iteration_s * (1 - self.interval), high_s=iteration_s * (1 + self.interval),
            parts_s={"compute": iteration_s - update_s, "update": update_s}, layers=(), roofline_s=iteration_s / 2,
            memory_bytes=4 * self.parameter_bytes + workload.batch * self.kept_bytes,
            parameter_bytes=self.parameter_bytes, samples=self.samples, basis="invented",
        )  # fmt: skip


def invented_device(chance: random.Random, name: str, kind: str = "gpu") -> Device:
    float32 = 10 ** chance.uniform(12.5, 14)
    faster = chance.choice((None, 1.0, 4.0, 8.0))
    peak = Peak(float32, float32 * faster if faster else None, 2 * float32 * faster if faster else None)
    return Device(name, kind, peak, memory_bytes=chance.choice((2, 8, 24, 80)) << 30, relative="invented")


def invented_cluster(seed: int) -> Cluster:
    """Of GPUs and CPUs, with links from slow to fast, and prices that roughly follow what one gets."""
    chance = random.Random(seed)
    machines = []
    for number in range(chance.choice((2, 3, 4))):
        kind = "gpu" if chance.random() < 0.8 else "cpu"
        device = invented_device(chance, f"card {number}", kind)
        if kind == "cpu":
            device = replace(device, peak=Peak(float32=(device.peak.float32 or 0) / 30), memory_bytes=None, cores=8)
        devices = chance.choice((1, 1, 2, 4, 8))
        price = devices * (device.peak.float32 or 0) / 1e13 * chance.uniform(0.3, 1.5)
        machine = Machine(
            f"box {number}", (DeviceCount(device, devices),), vcpus=8 * devices, memory_bytes=64 << 30,
            host_device=Link("bus", 1e-5, 10 ** chance.uniform(9.8, 10.8)),
            device_device=chance.choice((None, Link("bridge", 3e-6, 3e11, shared=False))),
            network=Link("wire", 10 ** chance.uniform(-5.5, -4), 10 ** chance.uniform(8, 11)),
            price_per_hour=price, price_date="2026-01",
        )  # fmt: skip
        machines.append(MachineCount(machine, chance.choice((1, 2, 3, 4, 6, 8))))
    return Cluster(f"cluster {seed}", tuple(machines))


def invented_predictions(seed: int) -> InventedPredictions:
    chance = random.Random(1000 + seed)
    return InventedPredictions(
        samples=chance.choice((20_000, 60_000, 1_281_167)),
        parameter_bytes=int(10 ** chance.uniform(5.5, 8.8)),
        flops=10 ** chance.uniform(7, 10.5),
        fixed_s=10 ** chance.uniform(-3.5, -2),
        kept_bytes=int(10 ** chance.uniform(4, 7.8)),
        interval=chance.choice((0.0, 0.1, 0.3)),
    )
