"""What the command line asked for, and which data this machine can offer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from paceline import data


@dataclass(frozen=True)
class Options:
    device: torch.device
    rounds: int | None
    """None: as many as fit the time."""
    quick: bool
    networks: tuple[str, ...] = ()
    """For `measure` and `families`; none: all of the device."""
    pairs: int = 20
    """For `measure`: blocks with the clock, each compared with one without it."""
    keep: Path | None = None
    """For `predict`: where calibration and measurements are kept; for `families`: trained networks."""
    load: Path | None = None
    """For `predict`: kept ones to be evaluated again; for `left_out`: the file of a calibration."""
    modes: tuple[str, ...] = ()
    """For `predict`: kinds of steps and precisions, such as `plain bfloat16`; none: all of the device."""


def digits_of_28(count: int) -> str:
    """MNIST if it was fetched before, else noise of its shape: a benchmark downloads nothing."""
    return f"mnist:{count}" if data.path("mnist") is not None else f"synthetic:1x28x28:{count}"
