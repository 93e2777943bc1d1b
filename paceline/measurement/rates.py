"""Peak rates of the device, from a large matrix product and a large copy, in a fraction of a second."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from time import perf_counter

import torch


@dataclass(frozen=True)
class DeviceRates:
    flops: float
    bytes: float


@cache
def device_rates(device: torch.device, dtype: torch.dtype = torch.float32) -> DeviceRates:
    size = 4096 if device.type == "cuda" else 768
    a = torch.rand(size, size, device=device, dtype=dtype)
    b, c = torch.rand_like(a), torch.empty_like(a)
    source = torch.zeros(1 << (28 if device.type == "cuda" else 24), device=device)
    target = torch.empty_like(source)
    product = _best_s(lambda: torch.mm(a, b, out=c), device)
    copy = _best_s(lambda: target.copy_(source), device)
    return DeviceRates(2.0 * size**3 / product, 2.0 * source.numel() * source.element_size() / copy)


def _best_s(work: Callable[[], object], device: torch.device, rounds: int = 5) -> float:
    times = []
    for _ in range(rounds):
        start = perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(perf_counter() - start)
    return min(times)
