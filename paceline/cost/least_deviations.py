"""A fit that a few wrong measurements move little: the smallest sum of absolute relative errors."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.optimize import nnls  # type: ignore[import-untyped]

Array = npt.NDArray[np.float64]

PASSES = 30
SMALL_ERROR = 0.03
"""Relative errors below this count the same, so that the reweighted fit converges."""


def least_deviations(columns: Array, took: Array) -> Array:
    """Factors of the columns, none below zero, with the smallest sum of absolute relative errors."""
    weights = np.ones(len(took))
    for _ in range(PASSES):
        found, _ = nnls(columns / took[:, None] * weights[:, None], weights)
        weights = 1 / np.sqrt(np.maximum(np.abs(columns @ found / took - 1), SMALL_ERROR))
    factors: Array = found
    return factors
