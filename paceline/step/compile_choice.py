"""Whether compiling pays: its time against what it saves in the updates that are to come.

Both are estimated from the network, the device and the number of updates alone, never timed: a run that is repeated or
resumed must take the same step to end with the same parameters.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from paceline.step.arithmetic import work_of
from paceline.step.build import example_of
from paceline.step.layout import HALF_PRECISIONS
from paceline.step.step import Parts

FORWARD_PASSES = 3.0
"""Arithmetic of a step, in forward passes: the backward pass takes two."""
BYTES_PER_NUMBER = 6.0
"""Traffic of a step for each number that a layer writes: written, read and differentiated in half precision."""
COMPILE_BASE_S, COMPILE_LAYER_S = 10.0, 0.3
"""Compiling a network from an empty cache, and each of its layers: 25 to 80 s for networks of 50 to 200 layers."""
CHAIN_LAYERS = (nn.Flatten, nn.Linear, nn.Tanh, nn.Sigmoid, nn.ReLU, nn.Dropout)
MARGIN = 2.0
"""What is saved should be this many times what compiling takes, since both are estimates."""


@dataclass(frozen=True)
class _Speed:
    """Of a fast device of its kind, so that a step is rather estimated too short, and compiled too late."""

    flops_per_s: float
    bytes_per_s: float
    saved: float
    """Least share of a step that compiling saved in the networks that it was tried with."""


_GPU_HALF, _GPU = _Speed(300e12, 3e12, 0.1), _Speed(50e12, 1.5e12, 0.05)


def compiling_pays(parts: Parts, updates: int, on_gpu: bool | None = None) -> str | None:
    """Why compiling pays for this number of updates, or None if it does not. `on_gpu`: by default, where it is."""
    workload, layers = parts.workload, list(parts.network.modules())
    if not (parts.device.type == "cuda" if on_gpu is None else on_gpu):
        return None  # compiled steps took 0.98 to 1.12 times as long as uncompiled ones there
    if any(isinstance(layer, nn.RNNBase) for layer in layers):
        return None  # library kernels that the compiler leaves as they are, or cannot take
    if all(isinstance(layer, CHAIN_LAYERS) for layer in layers if not list(layer.children())):
        return None  # a chain of layers is written out, which is faster than compiling it
    half = workload.precision in HALF_PRECISIONS
    speed = _GPU_HALF if half else _GPU
    work = work_of(parts.network, example_of(workload, parts.dataset).to(parts.device))
    sample_s = FORWARD_PASSES * work.flops / speed.flops_per_s + BYTES_PER_NUMBER * work.written / speed.bytes_per_s
    compile_s = COMPILE_BASE_S + COMPILE_LAYER_S * _layers(parts.network)
    saved_s = updates * workload.batch * sample_s * speed.saved
    if not MARGIN * compile_s < saved_s < float("inf"):
        return None
    return f"compiling takes about {compile_s:.0f} s and should save at least {saved_s:,.0f} s in {updates:,} updates"


def _layers(network: nn.Module) -> int:
    return sum(1 for layer in network.modules() if next(layer.parameters(recurse=False), None) is not None)
