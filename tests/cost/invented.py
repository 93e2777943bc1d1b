"""Devices whose operations follow a known law, and measurements of networks that ran on them."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from paceline.cost.calibration import Calibration, StepOverheads, TrialSet
from paceline.cost.curve import Trial
from paceline.cost.families import FAMILIES, Sizes
from paceline.cost.op_tracing import NetworkShape, trace_network
from paceline.cost.shape_sampling import Limits, sample_shape
from paceline.measurement.measurement import LayerTime, Measurement, Spread
from paceline.step.optimizers import Rule
from paceline.step.phase import Batch, Outcome
from paceline.trace import Trace

LIMITS = Limits(3e9, 2.0**22)


@dataclass(frozen=True)
class Law:
    """A fixed cost, arithmetic at one rate, memory at another; trials of it scatter by `noise`."""

    fixed_s: float = 2e-6
    flops: float = 1e11
    bytes: float = 2e10
    noise: float = 0.0

    def seconds(self, family: str, sizes: Sizes) -> float:
        flops, elements = FAMILIES[family].work_of(sizes)
        return self.fixed_s + flops / self.flops + 4.0 * elements / self.bytes

    def trials(self, family: str, kind: str, count: int, seed: int = 0) -> list[Trial]:
        """`kind` is what sizes are drawn for: a backward pass has those of its forward pass."""
        rng = random.Random(f"{seed} {family}")
        drawn = [sample_shape(kind, rng, LIMITS) for _ in range(count)]
        return [Trial(family, s, self.seconds(family, s) * rng.lognormvariate(0, self.noise)) for s in drawn]


DRAWN_AS = {
    "matmul": "matmul", "convolution": "convolution", "convolution_backward": "convolution",
    "convolution_backward_weight": "convolution", "add": "add", "copy": "copy", "softmax": "softmax",
    "softmax_backward": "softmax", "reduce": "reduce", "relu": "relu", "threshold_backward": "threshold_backward",
}  # fmt: skip


def calibration(
    device: str = "cpu",
    law: Law | None = None,
    *,
    count: int = 12,
    sets: Sequence[tuple[str, int]] | None = None,
    step_overheads: Mapping[str, StepOverheads] | None = None,
) -> Calibration:
    """Of a device that follows `law` in every set of (precision, threads)."""
    law = law or Law()
    sets = sets or ([("float32", 1), ("float32", 2)] if device == "cpu" else [("float32", 0)])
    trials = tuple(t for family, kind in DRAWN_AS.items() for t in law.trials(family, kind, count))
    shapes: dict[str, tuple[float, ...]] = dict.fromkeys(DRAWN_AS, ())
    return Calibration(
        device, f"an invented {device}", tuple(TrialSet(p, threads, trials, shapes) for p, threads in sets),
        dict(step_overheads or {}), peak_flops=law.flops, peak_bytes=law.bytes, probe_spread=0.1, cores=2,
        memory_bytes=8 << 30, conditions={"torch": torch.__version__, "trials": str(len(trials)), "residual": "0.1"},
    )  # fmt: skip


def read(network: nn.Module | type[nn.Module], x: Tensor, *, frozen: bool = False) -> NetworkShape:
    """The operations of a network whose output is summed; in a `frozen` network only the last layer is trained."""
    build = network if isinstance(network, type) else lambda: network

    def loss_of(made: nn.Module, samples: Batch) -> Tensor:
        output = made(samples[0])
        return (output if isinstance(output, Tensor) else output[0]).float().sum()

    return trace_network(
        build, lambda: (torch.empty(x.shape, dtype=x.dtype), torch.empty(0)), lambda made: [OwnPhase(made, loss_of)]
    )


class OwnPhase:
    """The gradient of a loss of the tests' own, for all parameters that are not frozen."""

    name, rule = "own", Rule("sgd", 0.1)

    def __init__(self, network: nn.Module, loss: Callable[[nn.Module, Batch], Tensor]) -> None:
        self.network, self.loss = network, loss
        self.parameters = [p for p in network.parameters() if p.requires_grad]

    def gradient(self, batch: Batch, generator: torch.Generator) -> Outcome:
        loss = self.loss(self.network, batch)
        return Outcome(loss.detach(), torch.autograd.grad(loss, self.parameters, allow_unused=True))


def spread(seconds: float) -> Spread:
    return Spread(seconds, 0.9 * seconds, 1.1 * seconds, seconds)


def layer(name: str, forward_s: float, backward_s: float, kind: str = "Linear", parameters: int = 10) -> LayerTime:
    return LayerTime(
        name, kind, 1, spread(forward_s), spread(backward_s), spread(1e-6), True, 1e6, 1000, parameters, 400,
        4 * parameters, 1e9, 1e9,
    )  # fmt: skip


def measurement(
    layers: Sequence[LayerTime], *, name: str = "mlp", batch: int = 100, step: str = "flat",
    device: str = "cpu", parts: Mapping[str, float] | None = None, data: str | None = "digits",
) -> Measurement:  # fmt: skip
    parts_s = {
        "forward": sum(x.forward_s.median_s for x in layers),
        "backward": sum(x.backward_s.median_s for x in layers),
        **(parts or {}),
    }
    conditions = {"optimizer": "sgd", "precision": "float32", "threads": "1"} | ({"data": data} if data else {})
    return Measurement(
        name, batch, device, f"an invented {device}", step, 100, 20, spread(sum(parts_s.values())), parts_s, parts_s,
        1.0, 0.0, 0.0, 0.0, tuple(layers), 1e11, 2e10, 300 << 20, conditions=conditions, trace=Trace(),
    )  # fmt: skip


def slower(found: Measurement, factor: float) -> Measurement:
    """As if everything had taken `factor` times as long."""

    def times(s: Spread) -> Spread:
        return Spread(factor * s.median_s, factor * s.p10_s, factor * s.p90_s, factor * s.mean_s)

    layers = tuple(
        replace(x, forward_s=times(x.forward_s), backward_s=times(x.backward_s), update_s=times(x.update_s))
        for x in found.layers
    )
    parts = {part: factor * took for part, took in found.parts_s.items()}
    return replace(found, iteration_s=times(found.iteration_s), parts_s=parts, layers=layers)
