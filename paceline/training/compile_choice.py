"""Whether compiling pays: its time against what it saves in the updates that are to come.

Both are estimated from the network, the device and the number of updates alone, never timed: a run that is repeated or
resumed must take the same step to end with the same parameters. The time of a step is the cost model's where the device
has a calibration; elsewhere it follows from arithmetic and memory traffic. What compiling saves of it is what the
calibration measured of such networks; where nobody measured it, it is known for bfloat16 on a GPU only.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from paceline.cost.calibration import Calibration
from paceline.cost.calibrations import calibration_path, load_calibration
from paceline.cost.device_calibration import calibration_of_device, find_catalogue_device
from paceline.cost.predicting import Traces, predict
from paceline.cost.workload_tracing import DataShape
from paceline.errors import PacelineError
from paceline.step.arithmetic import work_of
from paceline.step.build import example_of
from paceline.step.placement import device_name
from paceline.step.step import Parts

FORWARD_PASSES = 3.0
"""Arithmetic of a step, in forward passes: the backward pass takes two."""
BYTES_PER_NUMBER = 6.0
"""Traffic of a step for each number that a layer writes: written, read and differentiated in half precision."""
FLOPS_PER_S, BYTES_PER_S = 300e12, 3e12
"""Of a fast GPU in bfloat16. Elsewhere a step takes longer than estimated, so that it is compiled rather too late."""
SAVED_IN_BFLOAT16 = 0.1
"""Share of a step that compiling saves on a GPU; an H200 saved 14 to 40 % of captured steps (a GPT and ConvNeXt-T)."""
LEAST_SAVED = 0.03
"""A calibration that measured less has measured nothing."""
COMPILE_BASE_S, COMPILE_LAYER_S = 10.0, 0.3
"""Compiling a network from an empty cache, and each of its layers: 25 to 80 s for networks of 50 to 200 layers."""
MARGIN = 2.0
"""What is saved should be this many times what compiling takes, since both are estimates."""
MOST_TIMES_ARITHMETIC = 20.0
"""A step that would have to take this many times as long as by its arithmetic is not worth the cost model's second."""


@dataclass(frozen=True)
class Target:
    """The device of a run, for an estimate; its calibration where it has one."""

    on_gpu: bool
    calibration: Calibration | None

    @staticmethod
    def of(parts: Parts) -> Target:
        return Target.named(device_name(parts.device), parts.workload.precision, on_gpu=parts.device.type == "cuda")

    @staticmethod
    def named(name: str, precision: str, *, on_gpu: bool) -> Target:
        """The calibration is the user's own, a bundled one, or one of a similar device."""
        path = calibration_path(name)
        if path.exists():
            return Target(on_gpu, load_calibration(path))
        sheet = find_catalogue_device(name)
        try:
            return Target(on_gpu, None if sheet is None else calibration_of_device(sheet, precision)[0])
        except PacelineError:  # in float64, for example
            return Target(on_gpu, None)


@dataclass(frozen=True)
class StepEstimate:
    seconds: float
    """Of an uncompiled step."""
    saved: float
    """Share of them that compiling saves."""
    basis: str


def compiling_pays(parts: Parts, updates: int, target: Target | None = None) -> str | None:
    """Why compiling pays for this number of updates, or None if it does not. `target`: None for the parts' device."""
    if parts.workload.precision == "float16" or any(isinstance(layer, nn.RNNBase) for layer in parts.network.modules()):
        return None  # values decide about updates; library kernels that the compiler leaves as they are, or cannot take
    compile_s = COMPILE_BASE_S + COMPILE_LAYER_S * _layers(parts.network)
    found = _estimate(parts, Target.of(parts) if target is None else target, MARGIN * compile_s / updates)
    if found is None:
        return None
    saved_s = updates * found.seconds * found.saved
    if not MARGIN * compile_s < saved_s < float("inf"):
        return None
    return (
        f"compiling takes about {compile_s:.0f} s and should save at least {saved_s:,.0f} s in {updates:,} updates, "
        f"{found.basis}"
    )


def _estimate(parts: Parts, target: Target, needed_s: float) -> StepEstimate | None:
    """None where nothing says that compiling saves anything, or a step cannot be so long that it saves `needed_s`."""
    unmeasured = SAVED_IN_BFLOAT16 if target.on_gpu and parts.workload.precision == "bfloat16" else 0.0
    ratios = target.calibration.compiled if target.calibration is not None else {}
    if not unmeasured and all(each.ratio > 1.0 - LEAST_SAVED for each in ratios.values()):
        return None
    arithmetic_s = _arithmetic_s(parts)
    if target.on_gpu and MOST_TIMES_ARITHMETIC * arithmetic_s < needed_s:
        return None
    found = _by_cost_model(parts, target.calibration, unmeasured) if target.calibration is not None else None
    found = found or StepEstimate(arithmetic_s, unmeasured, "by its arithmetic")
    return found if found.saved >= LEAST_SAVED else None


def _by_cost_model(parts: Parts, calibration: Calibration, unmeasured: float) -> StepEstimate | None:
    """None for a network that cannot be predicted."""
    data, traces = DataShape.of(parts.dataset), Traces()
    try:
        step = predict(parts.workload, calibration, data=data, traces=traces)
        saved = unmeasured
        if calibration.compiled:
            compiled = predict(parts.workload, calibration, step="compiled", data=data, traces=traces)
            saved = 1.0 - compiled.iteration_s / step.iteration_s
    except Exception:  # also the user's own code may fail on tensors without values
        return None
    return StepEstimate(step.iteration_s, saved, f"by the cost model of {calibration.device_name}")


def _arithmetic_s(parts: Parts) -> float:
    work = work_of(parts.network, example_of(parts.workload, parts.dataset).to(parts.device))
    sample_s = FORWARD_PASSES * work.flops / FLOPS_PER_S + BYTES_PER_NUMBER * work.written / BYTES_PER_S
    return parts.workload.batch * sample_s


def _layers(network: nn.Module) -> int:
    return sum(1 for layer in network.modules() if next(layer.parameters(recurse=False), None) is not None)
