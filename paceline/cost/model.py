"""The cost model of a device: from operations to seconds with uncertainty."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from paceline.cost.calibration import Calibration, TrialSet
from paceline.cost.curve import Curve, TimeEstimate, Trial
from paceline.cost.families import FAMILIES, Sizes
from paceline.cost.op_tracing import NetworkShape
from paceline.cost.operation import Operation
from paceline.errors import InputError
from paceline.step.placement import threads_for
from paceline.workload import Workload

UNKNOWN_LOG_SD = 0.7
"""For operations of no known family: errors by a factor of two either way are common."""
UNTRIED_LOG_SD = 0.5


@dataclass(frozen=True)
class Costed:
    operation: Operation
    seconds: float
    deviation: float
    """Standard deviation of the logarithm of `seconds`."""


class CostModel:
    """The cost model of a device for one precision and number of threads."""

    def __init__(self, calibration: Calibration, precision: str = "float32", threads: int = 0) -> None:
        self.calibration = calibration
        self.set = _chosen(calibration, precision, threads)
        self._trials: dict[str, list[Trial]] = defaultdict(list)
        for trial in self.set.trials:
            self._trials[trial.family].append(trial)

    def cost(self, operations: Sequence[Operation]) -> list[Costed]:
        """Estimates in the order of `operations`."""
        by_family: dict[str, list[int]] = defaultdict(list)
        for number, operation in enumerate(operations):
            by_family[operation.family].append(number)
        costed: dict[int, Costed] = {}
        for family, numbers in by_family.items():
            for number, estimate in zip(
                numbers, self._estimates(family, [operations[n].sizes for n in numbers]), strict=True
            ):
                operation = operations[number]
                deviation = estimate.deviation if operation.known else max(estimate.deviation, UNKNOWN_LOG_SD)
                costed[number] = Costed(operation, estimate.seconds, deviation)
        return [costed[number] for number in range(len(operations))]

    def seconds(self, family: str, sizes: Sizes) -> float:
        return self._estimates(family, [sizes])[0].seconds

    def _estimates(self, family: str, sizes: list[Sizes]) -> list[TimeEstimate]:
        if family not in self._trials:
            family = family.rstrip("_")  # use the out-of-place variant
        if family not in self._trials:
            return [TimeEstimate(self._roofline_s(family, each), UNTRIED_LOG_SD) for each in sizes]
        return _curve(self.set, family, self._trials[family]).estimates(sizes)

    def roofline_s(self, operations: Sequence[Operation]) -> float:
        """The plain roofline: each operation at the device's peak rates, without overheads."""
        return sum(self._roofline_s(operation.family, operation.sizes) for operation in operations)

    def _roofline_s(self, family: str, sizes: Sizes) -> float:
        flops, elements = FAMILIES[family].work_of(sizes)
        size_bytes = 2.0 if self.set.precision in ("bfloat16", "float16") else 4.0
        return max(flops / self._peak_flops, size_bytes * elements / self.calibration.peak_bytes)

    @functools.cached_property
    def _peak_flops(self) -> float:
        """Peak FLOP/s in this precision; `peak_flops` of the calibration is for float32."""
        if self.set.precision == "float32" or "matmul" not in self._trials:
            return self.calibration.peak_flops
        return max(FAMILIES["matmul"].work_of(trial.sizes)[0] / trial.seconds for trial in self._trials["matmul"])

    def shapes(self) -> dict[str, tuple[float, ...]]:
        """Kernel parameters of all families' curves, fitted where missing."""
        return {family: _curve(self.set, family, trials).shape for family, trials in self._trials.items()}


def _chosen(calibration: Calibration, precision: str, threads: int) -> TrialSet:
    """The set of trials nearest to the requested threads."""
    fitting = [found for found in calibration.sets if found.precision == precision]
    if not fitting:
        there = ", ".join(sorted({found.precision for found in calibration.sets}))
        raise InputError(
            f"{calibration.device_name} was calibrated for {there}, not for {precision}: "
            f"run `paceline.calibrate(precision={precision!r})`"
        )
    return min(fitting, key=lambda found: abs(found.threads - threads) if threads else -found.threads)


def model_for(calibration: Calibration, workload: Workload, shape: NetworkShape) -> CostModel:
    """The cost model for the number of threads a run would use."""
    threads = 0
    if calibration.device == "cpu":
        forward = sum(o.flops for o in shape.operations if o.direction == "forward")
        threads = workload.threads or threads_for(forward, calibration.cores)
    return CostModel(calibration, workload.precision, threads)


_curves: dict[tuple[int, str], tuple[TrialSet, Curve]] = {}


def _curve(trials: TrialSet, family: str, own: Sequence[Trial]) -> Curve:
    """Fitted once per set of trials and cached, because a plan uses the same curves many times."""
    key = id(trials), family
    if key not in _curves or _curves[key][0] is not trials:
        _curves[key] = trials, Curve(family, own, trials.shapes.get(family, ()))
    return _curves[key][1]
