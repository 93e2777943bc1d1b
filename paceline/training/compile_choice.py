"""Whether compiling pays: its time against what it saves in the updates that are to come.

Both are estimated from the network, the device and the number of updates alone, never timed: a run that is repeated or
resumed must take the same step to end with the same parameters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from paceline.data.cache import calibration_folder
from paceline.step.arithmetic import work_of
from paceline.step.build import example_of
from paceline.step.step import Parts

if TYPE_CHECKING:
    from paceline.training.step_estimate import Target

FORWARD_PASSES = 3.0
"""Arithmetic of a step, in forward passes: the backward pass takes two."""
BYTES_PER_NUMBER = 6.0
"""Traffic of a step for each number that a layer writes: written, read and differentiated in half precision."""
FLOPS_PER_S, BYTES_PER_S = 300e12, 3e12
"""Of a fast GPU in bfloat16. Elsewhere a step takes longer than estimated, so that it is compiled rather too late."""
MOST_TIMES_ARITHMETIC = {"cuda": 20.0, "cpu": 10_000.0}
"""No step takes longer than this many times its arithmetic on such a GPU, by kind of device. Where even that would not
be long enough, the cost model is neither loaded nor asked, which takes a second."""
COMPILE_BASE_S, COMPILE_LAYER_S = 10.0, 0.3
"""Compiling a network from an empty cache, and each of its layers: 25 to 80 s for networks of 50 to 200 layers."""
MARGIN = 2.0
"""What is saved should be this many times what compiling takes, since both are estimates."""


def compiling_pays(parts: Parts, updates: int, target: Target | None = None) -> str | None:
    """Why compiling pays for this number of updates, or None if it does not. `target`: None for the parts' device."""
    if parts.workload.precision == "float16" or any(isinstance(layer, nn.RNNBase) for layer in parts.network.modules()):
        return None  # values decide about updates; library kernels that the compiler leaves as they are, or cannot take
    if target is None and parts.device.type == "cpu" and not calibration_folder().is_dir():
        return None  # the bundled calibration measured nothing to save on a CPU, and there is no other
    compile_s = COMPILE_BASE_S + COMPILE_LAYER_S * _layers(parts.network)
    arithmetic_s = _arithmetic_s(parts)
    kind = parts.device.type if target is None else ("cuda" if target.on_gpu else "cpu")
    if updates * MOST_TIMES_ARITHMETIC[kind] * arithmetic_s < MARGIN * compile_s:
        return None
    from paceline.training.step_estimate import Target, estimate_step

    found = estimate_step(parts, arithmetic_s, Target.of(parts) if target is None else target)
    if found is None:
        return None
    saved_s = updates * found.seconds * found.saved
    if not MARGIN * compile_s < saved_s < float("inf"):
        return None
    return (
        f"compiling takes about {compile_s:.0f} s and should save at least {saved_s:,.0f} s in {updates:,} updates, "
        f"{found.basis}"
    )


def _arithmetic_s(parts: Parts) -> float:
    work = work_of(parts.network, example_of(parts.workload, parts.dataset).to(parts.device))
    sample_s = FORWARD_PASSES * work.flops / FLOPS_PER_S + BYTES_PER_NUMBER * work.written / BYTES_PER_S
    return parts.workload.batch * sample_s


def _layers(network: nn.Module) -> int:
    return sum(1 for layer in network.modules() if next(layer.parameters(recurse=False), None) is not None)
