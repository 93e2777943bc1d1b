"""What a step takes and what compiling saves of it, as far as it is known without timing anything.

The time of a step is the cost model's where the device has a calibration; elsewhere it follows from its arithmetic.
What compiling saves is what the calibration measured of such networks; where nobody measured it, it is known for
bfloat16 on a GPU only.
"""

from __future__ import annotations

from dataclasses import dataclass

from paceline.cost.calibration import Calibration
from paceline.cost.calibrations import calibration_path, load_calibration
from paceline.cost.device_calibration import calibration_of_device, find_catalogue_device
from paceline.cost.predicting import Traces, predict
from paceline.cost.workload_tracing import DataShape
from paceline.errors import PacelineError
from paceline.step.placement import device_name
from paceline.step.step import Parts

SAVED_IN_BFLOAT16 = 0.1
"""Share of a step that compiling saves on a GPU; an H200 saved 14 to 40 % of captured steps (a GPT and ConvNeXt-T)."""
LEAST_SAVED = 0.03
"""A calibration that measured less has measured nothing."""


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


def estimate_step(parts: Parts, arithmetic_s: float, target: Target) -> StepEstimate | None:
    """None where nothing says that compiling saves anything."""
    unmeasured = SAVED_IN_BFLOAT16 if target.on_gpu and parts.workload.precision == "bfloat16" else 0.0
    ratios = target.calibration.compiled if target.calibration is not None else {}
    if not unmeasured and all(each.ratio > 1.0 - LEAST_SAVED for each in ratios.values()):
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
