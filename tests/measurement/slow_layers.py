"""Layers whose times are known because they sleep, and the marks of one iteration."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from paceline.measurement.layer_clock import LayerClock
from paceline.measurement.module_marks import ModuleMarks
from paceline.measurement.tape import OUTSIDE, Owner, Tape

NOISE_S = 0.003


class Sleep(torch.autograd.Function):
    """Sleeps on both ways, and notes how long it really took."""

    @staticmethod
    def forward(ctx, x: Tensor, layer: SlowLayer) -> Tensor:
        ctx.layer = layer
        layer.slept["forward"] += slept_s(layer.forward_s)
        return x.clone()

    @staticmethod
    def backward(ctx, gradient: Tensor):
        ctx.layer.slept["backward"] += slept_s(ctx.layer.backward_s)
        return gradient, None


class SlowLayer(nn.Module):
    def __init__(self, forward_s: float = 0.005, backward_s: float = 0.010) -> None:
        super().__init__()
        self.forward_s, self.backward_s = forward_s, backward_s
        self.slept: dict[str, float] = defaultdict(float)
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        return Sleep.apply(x * self.weight, self)


def slept_s(seconds: float) -> float:
    start = time.perf_counter()
    time.sleep(seconds)
    return time.perf_counter() - start


def tape_of(model: nn.Module, iteration: Callable[[], object]) -> Tape:
    """The tape of one instrumented iteration."""
    tape = Tape()
    with ModuleMarks(model, lambda: tape).installed():
        tape.mark("edge", ("forward", OUTSIDE))
        iteration()
        tape.mark("edge", ("other", ""))
    return tape


def owners_of(model: nn.Module, iteration: Callable[[], object]) -> dict[Owner, float]:
    return tape_of(model, iteration).durations_s({})


def check_sleeps(model: nn.Module, iteration: Callable[[], object]) -> Tape:
    """Each slow layer has its own sleep, and no other row has any: the quietest of three times counts."""
    slow = {name: module for name, module in model.named_modules() if isinstance(module, SlowLayer)}
    assert slow
    extra: dict[Owner, float] = {}
    for _ in range(3):
        for layer in slow.values():
            layer.slept.clear()
        tape = tape_of(model, iteration)
        owners = tape.durations_s({})
        slept = {(part, row): seconds for row, layer in slow.items() for part, seconds in layer.slept.items()}
        for owner in {*owners, *slept}:
            assert owners.get(owner, 0.0) >= slept.get(owner, 0.0), owner
            beyond = owners[owner] - 1.2 * slept.get(owner, 0.0)
            extra[owner] = min(extra.get(owner, beyond), beyond)
    assert max(extra.values()) < NOISE_S, extra
    return tape


def rows(owners: dict[Owner, float], part: str) -> set[str]:
    return {row for owner, row in owners if owner == part}


def hooks_of(model: nn.Module) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) + len(m._backward_hooks) for m in model.modules())


def iterations(clock: LayerClock, batches: int, shape: tuple[int, ...] = (3, 4)) -> Iterator[Tensor]:
    """Batches through the clock, with its step after each."""
    for batch in clock.batches(torch.randn(batches, *shape)):
        yield batch
        clock.step()
