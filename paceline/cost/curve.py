"""The time of a family of operations on a device: a roofline fitted to trials, and its residual, interpolated.

The roofline (a fixed cost, arithmetic and memory at fitted rates) extrapolates to sizes that were not timed. Its
residual depends on undocumented choices of algorithms in libraries; a Gaussian process interpolates it between trials
and gives its uncertainty.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paceline.cost.families import FAMILIES, Sizes

Array = npt.NDArray[np.float64]

MIN_TRIALS = 6
MAX_TRIALS = 1000
FITTED_TRIALS = 200
"""Trials used to fit the kernel's parameters; fitting takes time cubic in their number."""


GROWING = {
    "k": (3,), "batch": (2, 4), "n": (2, 4), "m": (2, 4), "rows": (2, 4), "planes": (2, 4), "outer": (2, 4),
    "reduced": (2, 4), "heads": (2, 4), "elements": (2, 4),
}  # fmt: skip
"""Sizes that grow with the batch of a network. The process interpolates without knowing that an operation takes no
longer than a larger one; so it takes no longer than one that is this many times as large in one of them. The inner size
of a product stays odd if it is: libraries are slow at odd ones."""
CACHES = (2.0**18, 2.0**21, 2.0**24)
"""Elements at which the caches of common devices are exceeded."""


@dataclass(frozen=True)
class Trial:
    """A timed operation."""

    family: str
    sizes: Sizes
    seconds: float
    host_s: float = 0.0
    """Time of the host to call it, on a GPU; 0 if unknown."""
    workspace_bytes: int = 0
    """Memory that it needs while it runs, besides inputs and results; known for convolutions on a GPU."""
    first_workspace_bytes: int = 0
    """The same for the first call with these sizes, in which the library tries several algorithms."""
    cached_s: float = 0.0
    """Seconds where the caches of a CPU still hold everything, as in the smallest networks; 0 if unknown."""


@dataclass(frozen=True)
class TimeEstimate:
    """Estimated seconds, and the standard deviation of their logarithm."""

    seconds: float
    deviation: float


class Roofline:
    """A fixed cost, arithmetic at one rate and memory at several, fitted to minimise the relative error.

    Beyond the size of each cache, memory can only become slower. A few trials cannot tell a slower memory from a
    slower rate, so they are fitted with one rate.
    """

    def __init__(self, work: Array, seconds: Array) -> None:
        from scipy.optimize import nnls  # type: ignore[import-untyped]  # slow to import, and pages need no fit

        self._caches = CACHES if len(work) >= MIN_TRIALS else ()
        columns = self._columns(work)
        self.costs, _ = nnls(columns / seconds[:, None], np.ones(len(seconds)))
        if not self.costs.any():
            self.costs[0] = float(np.median(seconds))

    def seconds(self, work: Array) -> Array:
        found: Array = np.maximum(self._columns(work) @ self.costs, 1e-9)
        return found

    def _columns(self, work: Array) -> Array:
        beyond = (np.maximum(work[:, 1] - size, 0.0) for size in self._caches)
        return np.column_stack([np.ones(len(work)), work, *beyond])


class Curve:
    """`shape`: kernel parameters of an earlier fit to the same trials, to avoid fitting them again."""

    def __init__(self, family: str, trials: Sequence[Trial], shape: Sequence[float] = ()) -> None:
        self.family = FAMILIES[family]
        self.trials = tuple(trials)[:MAX_TRIALS]
        sizes = [trial.sizes for trial in self.trials]
        seconds = np.array([trial.seconds for trial in self.trials])
        self.roofline = Roofline(self._work(sizes), seconds)
        missed = np.log(seconds) - np.log(self.roofline.seconds(self._work(sizes)))
        features = self._features(sizes)
        self._center, self._width = features.mean(0), np.maximum(features.std(0), 0.5)
        self._deviation = float(np.std(missed)) or 0.05
        self._process = None
        if len(self.trials) >= MIN_TRIALS:
            self._process = _process(self._scaled(features), missed, self._deviation, shape)

    @property
    def shape(self) -> tuple[float, ...]:
        return () if self._process is None else tuple(float(v) for v in self._process.kernel_.theta)

    def estimates(self, sizes: Sequence[Sizes]) -> list[TimeEstimate]:
        rough = self.roofline.seconds(self._work(sizes))
        if self._process is None:
            return [TimeEstimate(float(s), max(0.3, self._deviation)) for s in rough]
        missed, deviation = self._process.predict(self._scaled(self._features(sizes)), return_std=True)
        seconds = rough * np.exp(missed)
        for place, name in enumerate(self.family.fields):
            for times in GROWING.get(name, ()) if (self.family.name, name) != ("matmul", "n") else ():
                larger = [(*each[:place], times * each[place], *each[place + 1 :]) for each in sizes]
                more = self._process.predict(self._scaled(self._features(larger)))
                seconds = np.minimum(seconds, self.roofline.seconds(self._work(larger)) * np.exp(more))
        return [TimeEstimate(float(s), float(d)) for s, d in zip(seconds, deviation, strict=True)]

    def _work(self, sizes: Sequence[Sizes]) -> Array:
        return np.array([self.family.work_of(s) for s in sizes], dtype=float).reshape(len(sizes), 2)

    def _features(self, sizes: Sequence[Sizes]) -> Array:
        work = np.log2(np.maximum(self._work(sizes), 1.0))
        return np.column_stack([np.array([self.family.features_of(s) for s in sizes], dtype=float), work])

    def _scaled(self, features: Array) -> Array:
        scaled: Array = (features - self._center) / self._width
        return scaled


def _process(features: Array, missed: Array, deviation: float, shape: Sequence[float]) -> "GaussianProcessRegressor":  # type: ignore[name-defined]  # noqa: F821, UP037
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

    smooth = Matern(length_scale=np.full(features.shape[1], 2.0), length_scale_bounds=(0.3, 30.0), nu=1.5)
    kernel = ConstantKernel(deviation**2, (1e-4, 10.0)) * smooth + WhiteKernel((0.3 * deviation) ** 2, (1e-5, 0.5))
    known = len(shape) == len(kernel.theta)
    if known:
        kernel = kernel.clone_with_theta(np.array(shape))
    if not known:
        some = np.random.default_rng(0).permutation(len(missed))[:FITTED_TRIALS]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            fitted = GaussianProcessRegressor(kernel, random_state=0).fit(features[some], missed[some])
        kernel = fitted.kernel_
    return GaussianProcessRegressor(kernel, optimizer=None).fit(features, missed)
