"""The record of a calibration: what operations take on a device, and how a step puts them together there."""

from __future__ import annotations

from dataclasses import dataclass, field

from paceline.cost.curve import Trial
from paceline.cost.exchange import ExchangeCost
from paceline.measurement.links import LinkSpeed


@dataclass(frozen=True)
class TrialSet:
    """Operations timed in one precision and, on a CPU, with one number of threads."""

    precision: str
    threads: int
    """0 on a GPU."""
    trials: tuple[Trial, ...]
    shapes: dict[str, tuple[float, ...]] = field(default_factory=dict)
    """By family: what a fit to these trials found, so that it need not be found again."""
    probes_s: dict[str, float] = field(default_factory=dict)
    """Medians of the probes beside them, with as many threads; another time's over these is how the machine drifted."""


@dataclass(frozen=True)
class Habits:
    """What a step adds to its operations when it runs whole networks; learnt from networks that were measured."""

    factors: dict[str, float] = field(default_factory=dict)
    """By family: how much longer in a network than alone, where other data passed through the caches between."""
    spreads: dict[str, float] = field(default_factory=dict)
    """By family: how far single layers are off after that, as a standard deviation of the logarithm."""
    forward_s: float = 0.0
    """Each operation of a forward pass: calling modules, recording for the backward pass."""
    backward_s: float = 0.0
    gap_s: float = 0.0
    """Between two operations of a captured step, on a GPU."""
    launch_s: float = 0.0
    """The host needs this long for each operation of a step that is not captured, on a GPU."""
    load_s: float = 0.0
    """Each iteration: asking for a batch."""
    load_element_s: float = 0.0
    """Each number of a batch: gathering and preparing it."""
    update_factor: float = 1.0
    """How much longer the update of the parameters takes than passes over as many numbers alone."""
    score_s: float = 0.0
    """Each iteration: counting loss and accuracy."""
    loop_s: float = 0.0
    """Each iteration: what else the loop does."""
    networks: tuple[str, ...] = ()
    """What this was learnt from."""


@dataclass(frozen=True)
class Calibration:
    device: str
    """`cpu` or `cuda`."""
    device_name: str
    sets: tuple[TrialSet, ...]
    habits: dict[str, Habits]
    """By step kind."""
    peak_flops: float
    """A large matrix product's, a second."""
    peak_bytes: float
    """A large copy's, a second, read and written."""
    probe_spread: float
    """(p90 - p10) / median of the probe that ran beside every trial: how unsteady the machine was."""
    links: tuple[LinkSpeed, ...] = ()
    exchange: tuple[ExchangeCost, ...] = ()
    """Of local workers, where that was tried."""
    cores: int = 0
    memory_bytes: int = 0
    conditions: dict[str, str] = field(default_factory=dict)

    @property
    def residual(self) -> float:
        """Median relative error of trials that the fit did not see, over all families; set by `calibrate`."""
        return float(self.conditions.get("residual", "nan"))


def habit_of(step: str, chain: bool) -> str:
    """Under which name a step's habits are kept: a chain written out has its own."""
    return f"{step} chain" if chain else step
