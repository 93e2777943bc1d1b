"""Whether compiling pays: its time against what it saves in the updates that are to come.

Both are estimated from the network, the device and the number of updates alone, never timed: a run that is repeated or
resumed must take the same step to end with the same parameters.
"""

from __future__ import annotations

from torch import nn

from paceline.step.arithmetic import work_of
from paceline.step.build import example_of
from paceline.step.step import Parts

FORWARD_PASSES = 3.0
"""Arithmetic of a step, in forward passes: the backward pass takes two."""
BYTES_PER_NUMBER = 6.0
"""Traffic of a step for each number that a layer writes: written, read and differentiated in half precision."""
FLOPS_PER_S, BYTES_PER_S = 300e12, 3e12
"""Of a fast GPU in bfloat16. Elsewhere a step takes longer than estimated, so that it is compiled rather too late."""
SAVED = 0.1
"""Share of a step that compiling saves; on an H200 it saved 14 to 40 % of captured steps (a GPT and ConvNeXt-T)."""
COMPILE_BASE_S, COMPILE_LAYER_S = 10.0, 0.3
"""Compiling a network from an empty cache, and each of its layers: 25 to 80 s for networks of 50 to 200 layers."""
MARGIN = 2.0
"""What is saved should be this many times what compiling takes, since both are estimates."""


def compiling_pays(parts: Parts, updates: int, on_gpu: bool | None = None) -> str | None:
    """Why compiling pays for this number of updates, or None if it does not. `on_gpu`: by default, where it is."""
    workload = parts.workload
    if not (parts.device.type == "cuda" if on_gpu is None else on_gpu):
        return None  # compiled steps took 0.98 to 1.12 times as long as uncompiled ones on a CPU
    if workload.precision != "bfloat16":
        return None  # nobody has measured yet whether it pays in other precisions
    if any(isinstance(layer, nn.RNNBase) for layer in parts.network.modules()):
        return None  # library kernels that the compiler leaves as they are, or cannot take
    work = work_of(parts.network, example_of(workload, parts.dataset).to(parts.device))
    sample_s = FORWARD_PASSES * work.flops / FLOPS_PER_S + BYTES_PER_NUMBER * work.written / BYTES_PER_S
    compile_s = COMPILE_BASE_S + COMPILE_LAYER_S * _layers(parts.network)
    saved_s = updates * workload.batch * sample_s * SAVED
    if not MARGIN * compile_s < saved_s < float("inf"):
        return None
    return f"compiling takes about {compile_s:.0f} s and should save at least {saved_s:,.0f} s in {updates:,} updates"


def _layers(network: nn.Module) -> int:
    return sum(1 for layer in network.modules() if next(layer.parameters(recurse=False), None) is not None)
