"""Compiled steps are predicted by measured ratios: a compiler fuses operations, so their own times say little.

A calibration runs a few reference networks compiled and not compiled, in turns, and keeps the ratio by kind of network.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp, hypot, log, sqrt
from statistics import mean

from paceline.cost.calibration import Calibration, CompiledRatio
from paceline.cost.iteration import Z_90
from paceline.cost.model import HALF
from paceline.cost.operation import Operation
from paceline.cost.prediction import Prediction
from paceline.errors import InputError

ANY = "any"
"""The ratio over all kinds of networks, for a kind that was not measured."""
ONE_NETWORK_LOG_SD = 0.15
"""Least spread of a kind, as a standard deviation of the logarithm: a single network says little about others."""
OTHER_KIND_LOG_SD = 0.3


@dataclass(frozen=True)
class MeasuredRatio:
    """One network, compiled and not."""

    network: str
    kind: str
    ratio: float
    precision: str = "float32"


def network_kind(operations: Sequence[Operation]) -> str:
    """`attention` or `recurrent` for a network with such layers, else where most of its arithmetic is."""
    families = {operation.family for operation in operations}
    for kind in ("attention", "recurrent"):
        if kind in families:
            return kind
    flops: dict[str, float] = defaultdict(float)
    for operation in operations:
        flops[operation.family.partition("_")[0]] += operation.flops
    return max(("convolution", "matmul"), key=lambda family: flops[family])


def ratios_by_kind(measured: Sequence[MeasuredRatio], step: str) -> dict[str, CompiledRatio]:
    """`step`: the kind of step that compiled ones were compared with."""
    found = {}
    for precision in dict.fromkeys(one.precision for one in measured):
        alike = [one for one in measured if one.precision == precision]
        for kind in dict.fromkeys(one.kind for one in alike):
            own = [one for one in alike if one.kind == kind]
            found[_key(kind, precision)] = _ratio(own, step, ONE_NETWORK_LOG_SD)
        found[_key(ANY, precision)] = _ratio(alike, step, OTHER_KIND_LOG_SD)
    return found


def _key(kind: str, precision: str) -> str:
    """Half precision has ratios of its own: a compiler removes its casts."""
    return f"{kind} bfloat16" if precision in HALF else kind


def _ratio(measured: Sequence[MeasuredRatio], step: str, least: float) -> CompiledRatio:
    logs = [log(one.ratio) for one in measured]
    middle = mean(logs)
    spread = sqrt(mean((value - middle) ** 2 for value in logs))
    return CompiledRatio(step, exp(middle), max(least, spread), tuple(one.network for one in measured))


def ratio_for(calibration: Calibration, kind: str, precision: str = "float32") -> CompiledRatio:
    known = calibration.compiled
    if not known:
        raise InputError(
            f"the calibration of {calibration.device_name} has no ratios for compiled steps: "
            "run paceline calibrate there, or predict another step"
        )
    wanted = (_key(kind, precision), _key(ANY, precision), kind, ANY)
    return next((known[key] for key in wanted if key in known), next(iter(known.values())))


def as_compiled(base: Prediction, found: CompiledRatio, kind: str) -> Prediction:
    """The prediction of another step, scaled to a compiled one; its interval grows by the spread of the ratio."""
    width = hypot(log(base.high_s / base.iteration_s), Z_90 * found.log_sd)
    whole = base.iteration_s * found.ratio
    spread = exp(Z_90 * found.log_sd)
    layers = tuple(
        replace(
            layer, forward_s=layer.forward_s * found.ratio, backward_s=layer.backward_s * found.ratio,
            update_s=layer.update_s * found.ratio, low_s=layer.low_s * found.ratio / spread,
            high_s=layer.high_s * found.ratio * spread,
        )
        for layer in base.layers
    )  # fmt: skip
    return replace(
        base, step="compiled", iteration_s=whole, low_s=whole * exp(-width), high_s=whole * exp(width), layers=layers,
        parts_s={part: seconds * found.ratio for part, seconds in base.parts_s.items()},
        basis=f"{base.basis}; compiled: {found.ratio:.2f} times the {found.step} step, as measured for {kind} networks",
    )  # fmt: skip
