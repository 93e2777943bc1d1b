"""The cost model of a device: from operations to seconds with uncertainty."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Sequence

from paceline.cost.caches import Costed, in_caches
from paceline.cost.calibration import Calibration, OwnTrial, TrialSet
from paceline.cost.curve import TimeEstimate, Trial
from paceline.cost.families import FAMILIES, MATRIX_UNITS, Sizes
from paceline.cost.op_tracing import NetworkShape
from paceline.cost.operation import Operation
from paceline.errors import InputError
from paceline.step.placement import threads_for
from paceline.workload import Workload

UNKNOWN_LOG_SD = 0.7
"""For operations of no known family: errors by a factor of two either way are common."""
UNTRIED_LOG_SD = 0.5
OWN_LOG_SD = 0.05
"""For operations that were timed with the same shapes."""
HALF = ("bfloat16", "float16")
DEFAULT_HOST_S = 15e-6
"""To launch an operation that was not timed."""


class CostModel:
    """The cost model of a device for one precision and number of threads.

    Mixed precision runs some operations in half precision and others in float32: each is estimated from trials of its
    own type.
    """

    def __init__(self, calibration: Calibration, precision: str = "float32", threads: int = 0) -> None:
        self.calibration, self.precision = calibration, precision
        self.set = _chosen(calibration, precision, threads)
        self._sets = {self.set.precision: self.set}
        for name in ("float32", "bfloat16"):
            if name not in self._sets and any(each.precision == name for each in calibration.sets):
                self._sets[name] = _chosen(calibration, name, threads)
        images = [each for each in calibration.sets if each.memory_format == "channels_last"]
        self._images = {each.precision: _nearest(images, each.precision, threads) for each in images}

    def cost(self, operations: Sequence[Operation]) -> list[Costed]:
        """Estimates of the operations of a network, in their order."""
        return in_caches(self.timed(operations), self.calibration.cache_bytes)

    def timed(self, operations: Sequence[Operation]) -> list[Costed]:
        """The same as calibrating times them, each with what a large network leaves in the caches."""
        alike: dict[tuple[str, str, bool], list[int]] = defaultdict(list)
        for number, operation in enumerate(operations):
            alike[operation.family, operation.dtype, operation.channels_last].append(number)
        costed: dict[int, Costed] = {}
        for (family, dtype, channels_last), numbers in alike.items():
            estimates = self._estimates(family, [operations[n].sizes for n in numbers], dtype, channels_last)
            cached, code_s = self._cached(family, [operations[n].sizes for n in numbers], dtype, channels_last)
            for number, estimate, cached_s in zip(numbers, estimates, cached, strict=True):
                operation = operations[number]
                if (own := self._own(operation)) is not None:
                    lost_s = min(code_s, own.seconds - own.cached_s)
                    costed[number] = Costed(operation, own.seconds, OWN_LOG_SD, own.cached_s, lost_s)
                    continue
                deviation = estimate.deviation if operation.known else max(estimate.deviation, UNKNOWN_LOG_SD)
                cached_s = min(cached_s, estimate.seconds)
                lost_s = min(code_s, estimate.seconds - cached_s)
                costed[number] = Costed(operation, estimate.seconds, deviation, cached_s, lost_s)
        return [costed[number] for number in range(len(operations))]

    def _own(self, operation: Operation) -> OwnTrial | None:
        own = self.calibration.own
        return own.trial(operation, self.set.threads) if own is not None else None

    def unknown(self, operations: Sequence[Operation]) -> tuple[str, ...]:
        """PyTorch's names of operations that are of no known family and were not timed either."""
        return tuple(sorted({each.name for each in operations if not each.known and self._own(each) is None}))

    def seconds(self, family: str, sizes: Sizes, dtype: str = "float32") -> float:
        return self._estimates(family, [sizes], dtype)[0].seconds

    def host_s(self, operation: Operation) -> float:
        """Time of the host to call an operation alone, on a GPU."""
        sets = (self.set, self._sets.get("float32", self.set))
        found = (each.host_s(operation.family, operation.sizes) for each in sets)
        return next((seconds for seconds in found if seconds is not None), DEFAULT_HOST_S)

    def trials_like(self, operation: Operation) -> list[Trial]:
        """Trials of its family, type and memory format."""
        found = self._set_of(operation.family, operation.dtype, operation.channels_last)
        return found.by_family.get(operation.family, [])

    def _set_of(self, family: str, dtype: str, channels_last: bool) -> TrialSet:
        """The trials of operations of this type: in half precision, float32, or tf32 for what runs on matrix units."""
        if dtype in HALF:
            wanted = [self.precision, dtype, "bfloat16"]
        elif self.precision == "tf32" and family.startswith(MATRIX_UNITS):
            wanted = ["tf32"]
        else:
            wanted = ["float32"]
        found = next((self._sets[name] for name in wanted if name in self._sets), self.set)
        images = self._images.get(found.precision) if channels_last else None
        return images if images is not None and family in images.by_family else found

    def _estimates(
        self, family: str, sizes: list[Sizes], dtype: str, channels_last: bool = False
    ) -> list[TimeEstimate]:
        for name in (family, family.rstrip("_")):  # the out-of-place variant, where that alone was timed
            chosen = self._set_of(name, dtype, channels_last)
            if name in chosen.by_family:
                return chosen.curve(name).estimates(sizes)
        return [TimeEstimate(self._roofline_s(family, each, dtype), UNTRIED_LOG_SD) for each in sizes]

    def _cached(self, family: str, sizes: list[Sizes], dtype: str, channels_last: bool) -> tuple[list[float], float]:
        """Where known, the seconds with everything in the caches, and how much more it takes without the code."""
        for name in (family, family.rstrip("_")):
            chosen = self._set_of(name, dtype, channels_last)
            curve = chosen.cached_curve(name) if name in chosen.by_family else None
            if curve is not None:
                return [estimate.seconds for estimate in curve.estimates(sizes)], chosen.code_s(name)
        return [0.0 for _ in sizes], 0.0

    def roofline_s(self, operations: Sequence[Operation]) -> float:
        """The plain roofline: each operation at the device's peak rates, without overheads."""
        return sum(self._roofline_s(operation.family, operation.sizes, operation.dtype) for operation in operations)

    def _roofline_s(self, family: str, sizes: Sizes, dtype: str) -> float:
        flops, elements = FAMILIES[family].work_of(sizes)
        size_bytes = 2.0 if dtype in HALF else 4.0
        fast = dtype in HALF or (self.precision == "tf32" and family.startswith(MATRIX_UNITS))
        return max(
            flops / (self._peak_flops if fast else self.calibration.peak_flops),
            size_bytes * elements / self.calibration.peak_bytes,
        )

    @functools.cached_property
    def _peak_flops(self) -> float:
        """Peak FLOP/s in this precision; `peak_flops` of the calibration is for float32."""
        products = self.set.by_family.get("matmul")
        if self.set.precision == "float32" or not products:
            return self.calibration.peak_flops
        return max(FAMILIES["matmul"].work_of(trial.sizes)[0] / trial.seconds for trial in products)


def fitted_shapes(trials: TrialSet) -> dict[str, tuple[float, ...]]:
    """Kernel parameters of all families' curves, fitted where missing."""
    return {family: trials.curve(family).shape for family in trials.by_family}


def _chosen(calibration: Calibration, precision: str, threads: int) -> TrialSet:
    """The set of trials nearest to the requested threads; float16 is as fast as bfloat16."""
    like = (precision, "bfloat16") if precision == "float16" else (precision,)
    fitting = [s for s in calibration.sets if s.precision in like and s.memory_format == "contiguous"]
    if not fitting:
        there = ", ".join(sorted({found.precision for found in calibration.sets}))
        raise InputError(
            f"{calibration.device_name} was calibrated for {there}, not for {precision}: "
            f"run `paceline.calibrate(precision={precision!r})`"
        )
    return _nearest(fitting, fitting[0].precision, threads)


def _nearest(sets: Sequence[TrialSet], precision: str, threads: int) -> TrialSet:
    """Of this precision, with the number of threads nearest to that one; 0 is as many as there are."""
    own = [each for each in sets if each.precision == precision]
    return min(own, key=lambda each: abs(each.threads - threads) if threads else -each.threads)


def model_for(calibration: Calibration, workload: Workload, shape: NetworkShape) -> CostModel:
    """The cost model for the number of threads a run would use."""
    return CostModel(calibration, workload.precision, run_threads(calibration, workload, shape))


def run_threads(calibration: Calibration, workload: Workload, shape: NetworkShape) -> int:
    """The number of threads a run would use; 0 on a GPU."""
    if calibration.device != "cpu":
        return 0
    forward = sum(o.flops for o in shape.operations if o.direction == "forward")
    return workload.threads or threads_for(forward, shape.parameter_bytes // 4, calibration.cores)
