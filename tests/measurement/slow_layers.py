"""Layers whose times are known because they sleep, and the marks of one iteration."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from paceline.measurement.layer_clock import LayerClock
from paceline.measurement.mark_log import OUTSIDE, MarkLog, SpanKey
from paceline.measurement.module_marks import ModuleMarks

NOISE_S = 0.003


class Sleep(torch.autograd.Function):
    """Sleeps in forward and backward, and records how long it really slept."""

    @staticmethod
    def forward(ctx, x: Tensor, layer: SlowLayer) -> Tensor:
        ctx.layer = layer
        layer.sleep("forward", layer.forward_s)
        return x.clone()

    @staticmethod
    def backward(ctx, gradient: Tensor):
        ctx.layer.sleep("backward", ctx.layer.backward_s)
        return gradient, None


class SlowLayer(nn.Module):
    def __init__(self, forward_s: float = 0.005, backward_s: float = 0.010) -> None:
        super().__init__()
        self.forward_s, self.backward_s = forward_s, backward_s
        self.slept: dict[str, float] = defaultdict(float)
        self.longest_s = 0.0
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        return Sleep.apply(x * self.weight, self)

    def sleep(self, part: str, seconds: float) -> None:
        slept = slept_s(seconds)
        self.slept[part] += slept
        self.longest_s = max(self.longest_s, slept)


def slept_s(seconds: float) -> float:
    start = time.perf_counter()
    time.sleep(seconds)
    return time.perf_counter() - start


def log_of(model: nn.Module, iteration: Callable[[], object]) -> MarkLog:
    """The marks of one instrumented iteration."""
    log = MarkLog()
    with ModuleMarks(model, lambda: log).installed():
        log.mark("edge", ("forward", OUTSIDE))
        iteration()
        log.mark("edge", ("loop", ""))
    return log


def spans_of(model: nn.Module, iteration: Callable[[], object]) -> dict[SpanKey, float]:
    return log_of(model, iteration).durations_s({})


def check_sleeps(model: nn.Module, iteration: Callable[[], object]) -> MarkLog:
    """Each slow layer has its own sleep and no other row has any; the least noisy of three runs counts."""
    slow = {name: module for name, module in model.named_modules() if isinstance(module, SlowLayer)}
    assert slow
    excess: dict[SpanKey, float] = {}
    for _ in range(3):
        for layer in slow.values():
            layer.slept.clear()
        log = log_of(model, iteration)
        spans_s = log.durations_s({})
        slept = {(part, row): seconds for row, layer in slow.items() for part, seconds in layer.slept.items()}
        for key in {*spans_s, *slept}:
            assert spans_s.get(key, 0.0) >= slept.get(key, 0.0), key
            beyond = spans_s[key] - 1.2 * slept.get(key, 0.0)
            excess[key] = min(excess.get(key, beyond), beyond)
    assert max(excess.values()) < NOISE_S, excess
    return log


def assert_none_of_it_is_booked(clock: LayerClock, outside_s: float, elapsed_s: float, since: int = 0) -> None:
    """Iterations and what was outside them fit into the time that passed, however busy the machine was.

    `since` is the number of the first iteration in that time; the first ones of a program may take long.
    """
    assert outside_s > 0.05
    assert sum(seconds for number, seconds, _ in clock.session.walls if number >= since) + outside_s <= elapsed_s


def rows(spans_s: dict[SpanKey, float], part: str) -> set[str]:
    return {row for key, row in spans_s if key == part}


def hooks_of(model: nn.Module) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) + len(m._backward_hooks) for m in model.modules())


def iterations(clock: LayerClock, batches: int, shape: tuple[int, ...] = (3, 4)) -> Iterator[Tensor]:
    """Batches from the clock, with `clock.step()` after each."""
    for batch in clock.batches(torch.randn(batches, *shape)):
        yield batch
        clock.step()
