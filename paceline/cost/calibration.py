"""The record of a calibration: times of operations on a device, and the overheads of a step that runs them."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from math import log2
from statistics import median
from typing import Any

from paceline.cost.curve import Curve, Trial
from paceline.cost.exchange import ExchangeCost
from paceline.cost.families import FAMILIES, Sizes
from paceline.cost.operation import Operation, OperationKey
from paceline.measurement.links import LinkSpeed
from paceline.measurement.network_times import NetworkTimes
from paceline.notebook import NotebookRecord

NEAREST = 5


def _distance(one: Sizes, other: Sizes) -> float:
    return sum(log2(a / b) ** 2 for a, b in zip(one, other, strict=True))


@dataclass(frozen=True)
class TrialSet:
    """Operations timed in one precision and, on a CPU, with one number of threads."""

    precision: str
    threads: int
    """0 on a GPU."""
    trials: tuple[Trial, ...]
    shapes: dict[str, tuple[float, ...]] = field(default_factory=dict)
    """Fitted kernel parameters by family, stored so that they need not be fitted again."""
    memory_format: str = "contiguous"
    """Of images; a set in `channels_last` has only the families that depend on it."""
    from_networks: tuple[Trial, ...] = ()
    """Further trials: layers of the reference networks that are one operation, on a GPU."""
    probes_s: dict[str, float] = field(default_factory=dict)
    """Median probe times with this number of threads; later probe times divided by these give the machine's drift."""

    # Kept with the set, because a plan uses the same curves many times.

    @functools.cached_property
    def by_family(self) -> dict[str, list[Trial]]:
        found: dict[str, list[Trial]] = defaultdict(list)
        for trial in (*self.from_networks, *self.trials):  # those first: a curve takes a limited number
            found[trial.family].append(trial)
        return dict(found)

    @functools.cached_property
    def _host_trials(self) -> dict[str, list[Trial]]:
        timed = {family: [trial for trial in own if trial.host_s > 0] for family, own in self.by_family.items()}
        return {family: own for family, own in timed.items() if own}

    def host_s(self, family: str, sizes: Sizes) -> float | None:
        """The time of the host to call an operation, where known: the median of its family, because launching one
        kernel takes as long for every size. A recurrent layer launches kernels for every step: those of its nearest
        sizes count."""
        trials = self._host_trials.get(family, [])
        if family.startswith("recurrent"):
            trials = sorted(trials, key=lambda trial: _distance(trial.sizes, sizes))[:NEAREST]
        return median(trial.host_s for trial in trials) if trials else None

    @functools.cached_property
    def _curves(self) -> dict[str, Curve]:
        return {}

    def curve(self, family: str) -> Curve:
        if family not in self._curves:
            self._curves[family] = Curve(family, self.by_family[family], self.shapes.get(family, ()))
        return self._curves[family]

    def code_s(self, family: str) -> float:
        """How much longer an operation of the family takes where the caches have lost its code: that is what a small
        one loses with them."""
        known = [trial for trial in self.by_family[family] if 0 < trial.cached_s < trial.seconds]
        small = sorted(known, key=lambda trial: FAMILIES[family].work_of(trial.sizes)[1])[: (len(known) + 1) // 2]
        return median(trial.seconds - trial.cached_s for trial in small) if small else 0.0

    @functools.cached_property
    def _cached_curves(self) -> dict[str, Curve | None]:
        return {}

    def cached_curve(self, family: str) -> Curve | None:
        """Of the times with all data in the caches, where they were measured."""
        if family not in self._cached_curves:
            own = [replace(trial, seconds=trial.cached_s) for trial in self.by_family[family] if trial.cached_s > 0]
            known = len(own) == len(self.by_family[family])
            self._cached_curves[family] = Curve(family, own, self.shapes.get(family, ())) if known else None
        return self._cached_curves[family]


@dataclass(frozen=True)
class StepOverheads:
    """What a step adds to the times of its operations when it runs a network; fitted to measured networks."""

    factors: dict[str, float] = field(default_factory=dict)
    """By family: time in a network divided by time alone; in a network the caches hold other data."""
    spreads: dict[str, float] = field(default_factory=dict)
    """By family: remaining error of single layers, as a standard deviation of the logarithm."""
    forward_s: float = 0.0
    """Per call of a layer on a CPU, which also records it for autograd. This and what follows for a CPU is where the
    caches hold everything; it takes longer where they have lost the code (`caches.slowed`)."""
    backward_s: float = 0.0
    """Per node of the backward pass on a CPU."""
    network_s: float = 0.0
    """Per iteration on a CPU: calling the whole network, more than for a layer in it."""
    loss_s: float = 0.0
    """Per iteration on a CPU: calling the loss."""
    loss_backward_s: float = 0.0
    """Per iteration on a CPU: starting the backward pass."""
    call_spread: float = 0.0
    """By how much the five times before differ between layers and networks, as a standard deviation divided by them."""
    gap_s: float = 0.0
    """Gap between two operations that wait in the queue of a GPU."""
    host_factor: float = 0.0
    """Host time to launch an operation in a step that is not captured, divided by that of calling it alone."""
    host_view_s: float = 0.0
    """Host time of an operation that only makes a view."""
    host_parameter_s: float = 0.0
    """Host time of the optimizer per parameter tensor."""
    host_s: float = 0.0
    """Host time per iteration besides."""
    host_log_sd: float = 0.0
    """Error of the host's times, as a standard deviation of the logarithm."""
    iteration_log_sd: float = 0.0
    """Error of the iteration of a network that was left out of the fit, as a standard deviation of the logarithm."""
    load_s: float = 0.0
    """Per iteration: requesting a batch."""
    load_element_s: float = 0.0
    """Per element of a batch: gathering and preparing it."""
    update_s: float = 0.0
    """Per iteration: starting the parameter update."""
    update_tensor_s: float = 0.0
    """Per parameter tensor: bringing its gradient to where the update reads it."""
    update_factor: float = 1.0
    """Time of the rest of the parameter update divided by that of the same passes over memory alone."""
    score_s: float = 0.0
    """Per iteration: computing loss and accuracy metrics."""
    loop_s: float = 0.0
    """Per iteration: the rest of the training loop."""
    networks: tuple[str, ...] = ()
    """The measured networks this was fitted to."""


@dataclass(frozen=True)
class CompiledRatio:
    """Time of a compiled step divided by that of another step of the same network, for one kind of networks."""

    step: str
    """The other step."""
    ratio: float
    log_sd: float
    """Spread between networks, as a standard deviation of the logarithm."""
    networks: tuple[str, ...]
    """The networks it was measured with."""


@dataclass(frozen=True)
class OwnTrial:
    """An operation of a network, timed alone with a number of threads."""

    name: str
    """PyTorch's name for it."""
    family: str
    sizes: tuple[int, ...]
    dtype: str
    channels_last: bool
    threads: int
    seconds: float
    """With the caches as a large network leaves them; 0: it cannot be run alone, and is estimated."""
    cached_s: float

    @property
    def key(self) -> OperationKey:
        return self.name, self.family, self.sizes, self.dtype, self.channels_last


@dataclass(frozen=True)
class OwnOperations:
    """`workload` is what they were traced for. `step_overheads` and `cache_bytes` are fitted to reference networks
    whose operations were timed in the same way, and take the place of the calibration's."""

    workload: str
    trials: tuple[OwnTrial, ...]
    step_overheads: dict[str, StepOverheads] = field(default_factory=dict)
    cache_bytes: float = 0.0

    @functools.cached_property
    def by_key(self) -> dict[tuple[OperationKey, int], OwnTrial]:
        return {(trial.key, trial.threads): trial for trial in self.trials}

    def trial(self, operation: Operation, threads: int) -> OwnTrial | None:
        found = self.by_key.get((operation.key, threads))
        return found if found is not None and found.seconds > 0 else None

    def cover(self, operations: Iterable[Operation], threads: int) -> bool:
        """Whether these are the operations of such a network."""
        return all((each.key, threads) in self.by_key for each in operations)


@dataclass(frozen=True, repr=False)
class Calibration(NotebookRecord):
    """What the operations and links of a device take: the result of `paceline.calibrate`."""

    device: str
    """`cpu` or `cuda`."""
    device_name: str
    sets: tuple[TrialSet, ...]
    step_overheads: dict[str, StepOverheads]
    """By step kind."""
    peak_flops: float
    """FLOP/s of a large matrix product."""
    peak_bytes: float
    """Bytes/s of a large copy, read plus written."""
    probe_spread: float
    """(p90 - p10) / median of the probe that ran next to every trial: how noisy the machine was."""
    links: tuple[LinkSpeed, ...] = ()
    exchange: tuple[ExchangeCost, ...] = ()
    """Cost of exchanging parameters between local workers, where measured."""
    references: tuple[NetworkTimes, ...] = ()
    """The measured networks that the step overheads were fitted to."""
    compiled: dict[str, CompiledRatio] = field(default_factory=dict)
    """By kind of network, where measured; `any` is for the other kinds."""
    own: OwnOperations | None = None
    """The operations of one workload, where asked for."""
    cores: int = 0
    memory_bytes: int = 0
    cache_bytes: float = 0.0
    """What an iteration has written when half of the data of an operation, and of its code, has left the caches of the
    CPU; 0: operations find nothing there, or it is a GPU."""
    conditions: dict[str, str] = field(default_factory=dict)

    def facts(self) -> dict[str, Any]:
        return {
            "device": self.device_name, "FLOP/s": self.peak_flops, "bytes/s": self.peak_bytes,
            "typical error": self.residual, "noise": self.probe_spread,
        }  # fmt: skip

    def table(self) -> list[dict[str, Any]]:
        return [
            {"precision": each.precision, "threads": each.threads, "operation": trial.family, "seconds": trial.seconds}
            for each in self.sets
            for trial in each.trials
        ]

    @property
    def residual(self) -> float:
        """Median relative error of trials that the fit did not see, over all families; set by `calibrate`."""
        return float(self.conditions.get("residual", "nan"))


def overheads_key(step: str, chain: bool, precision: str = "float32", threads: int = 0) -> str:
    """The key of a step's overheads. A chain with a hand-written gradient has its own, and so have half precision and
    one thread of a CPU, which wakes no others for each operation and computes small networks, which caches hold."""
    words = [step, *(["chain"] if chain else []), *([precision] if precision in ("bfloat16", "float16") else [])]
    return " ".join([*words, *(["1 thread"] if threads == 1 else [])])
