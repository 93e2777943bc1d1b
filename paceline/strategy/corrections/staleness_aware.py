"""Staleness-aware rate (Zhang et al. 2015, "Staleness-aware async-SGD for distributed deep learning"): g / τ."""

from __future__ import annotations

from torch import Tensor

from paceline.strategy.correction import Correction, Late


def staleness_aware() -> Correction:
    def correct(g: Tensor, late: Late) -> Tensor:
        return g if late.staleness <= 1 else g / late.staleness

    return Correction(correct, needs_fetched=False, elementwise=True, late_only=True, passes=(2, 0))
