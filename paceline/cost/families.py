"""Families of operations with the same cost structure, and the work of each.

An operation is a family and a few sizes. Two operations of one family with equal sizes take equally long on a device,
whatever network they come from. This makes networks predictable that were never measured.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import log2, prod

Sizes = tuple[int, ...]


@dataclass(frozen=True)
class Family:
    """`fields` name the sizes; `work` returns FLOP and elements moved, for a roofline."""

    name: str
    fields: tuple[str, ...]
    work: Callable[..., tuple[float, float]]
    features: Callable[..., tuple[float, ...]] | None = None
    """Features that determine the time, on a log2 scale; by default log2 of the sizes."""

    def work_of(self, sizes: Sizes) -> tuple[float, float]:
        return self.work(*sizes)

    def features_of(self, sizes: Sizes) -> tuple[float, ...]:
        if self.features is not None:
            return self.features(*sizes)
        return tuple(log2(max(size, 1)) for size in sizes)


def _matmul(batch: int, m: int, n: int, k: int, layout: int, bias: int) -> tuple[float, float]:
    return 2.0 * batch * m * n * k, float(batch * (m * k + k * n + m * n))


def _matmul_features(batch: int, m: int, n: int, k: int, layout: int, bias: int) -> tuple[float, ...]:
    shape = (log2(batch), log2(m), log2(n), log2(k))
    return (*shape, 2.0 * (layout == 1), 2.0 * (layout == 2), float(bias), _divisibility(n), _divisibility(k))


def _convolution(passes: int) -> Callable[..., tuple[float, float]]:
    """`passes`: products of the forward pass's size; backward has one for the weights and one for the input."""

    def work(
        n: int, c: int, h: int, w: int, k: int, r: int, s: int, p: int, q: int, groups: int, bias: int
    ) -> tuple[float, float]:
        moved = n * c * h * w + k * (c // groups) * r * s + n * k * p * q
        return 2.0 * passes * n * k * p * q * (c // groups) * r * s, float(passes * moved)

    return work


MATRIX_UNITS = ("matmul", "convolution", "attention", "recurrent")
"""Beginnings of the names of families that run on a GPU's matrix units."""
CONVOLUTIONS = ("convolution", "convolution_backward", "convolution_backward_weight")
"""Families that need a workspace on a GPU."""
IMAGE_FAMILIES = ("convolution", "batch_norm", "max_pool", "average_pool")
"""Families whose time depends on the memory format of images."""


def _convolution_features(
    n: int, c: int, h: int, w: int, k: int, r: int, s: int, p: int, q: int, groups: int, bias: int
) -> tuple[float, ...]:
    stride = max(1.0, h / p)
    channels = c // groups, k // groups
    shape = (log2(n), log2(p * q), *map(log2, channels), log2(groups), float(bias), *map(_divisibility, channels))
    # Libraries choose algorithms by kernel size; times of one case do not predict another.
    cases = (r * s == 1, r * s == 9, 9 < r * s <= 49, stride > 1.5, groups > 1)
    return (*shape, log2(r * s), *(CASE_DISTANCE * case for case in cases))


CASE_DISTANCE = 4.0
"""Distance between cases, on the log2 scale of the features."""


def _divisibility(size: int) -> float:
    """How often 2 divides it: libraries have fast kernels for multiples of 8 or 16."""
    return min(4.0, log2(size & -size))


def _moved(reads: float, operations: float = 1.0) -> Callable[..., tuple[float, float]]:
    """Elements moved and operations per output element."""
    return lambda *sizes: (operations * prod(sizes), reads * prod(sizes))


def _pool(planes: int, h: int, w: int, p: int, q: int, window: int) -> tuple[float, float]:
    return float(planes * p * q * window), float(planes * (h * w + 2 * p * q))


def _pool_features(planes: int, h: int, w: int, p: int, q: int, window: int) -> tuple[float, ...]:
    return log2(planes), log2(h * w), log2(p * q), log2(window)


def _lookup(rows: int, width: int, vocabulary: int) -> tuple[float, float]:
    return float(rows * width), 2.0 * rows * width


def _lookup_backward(rows: int, width: int, vocabulary: int) -> tuple[float, float]:
    return float(rows * width), 2.0 * rows * width + vocabulary * width


def _recurrent(passes: int) -> Callable[..., tuple[float, float]]:
    def work(steps: int, batch: int, inputs: int, hidden: int) -> tuple[float, float]:
        weights = 4 * hidden * (inputs + hidden)
        return 2.0 * passes * steps * batch * weights, float(passes * steps * (weights + 6 * batch * hidden))

    return work


def _recurrent_features(steps: int, batch: int, inputs: int, hidden: int) -> tuple[float, ...]:
    return (*map(log2, (steps, batch, inputs, hidden)), _divisibility(inputs), 2.0 * _divisibility(hidden))


def _attention(passes: float) -> Callable[..., tuple[float, float]]:
    def work(heads: int, queries: int, keys: int, width: int, causal: int) -> tuple[float, float]:
        products = passes * 4.0 * heads * queries * keys * width
        return products / (2 if causal else 1), passes * 2.0 * heads * (queries + keys) * width

    return work


def _attention_features(heads: int, queries: int, keys: int, width: int, causal: int) -> tuple[float, ...]:
    return (*map(log2, (heads, queries, keys, width)), 2.0 * causal)


_CONVOLUTION = ("n", "c", "h", "w", "k", "r", "s", "p", "q", "groups", "bias")
_RECURRENT = ("steps", "batch", "inputs", "hidden")
_ATTENTION = ("heads", "queries", "keys", "width", "causal")
_POOL = ("planes", "h", "w", "p", "q", "window")

POINTWISE = {
    # name: elements moved for each one written, operations
    "add": (3.0, 1.0), "add_": (3.0, 1.0), "mul": (3.0, 1.0), "copy": (2.0, 0.0), "cast": (2.0, 0.0),
    "relu": (2.0, 1.0),
    "relu_": (2.0, 1.0), "threshold_backward": (3.0, 1.0), "tanh": (2.0, 10.0), "tanh_backward": (3.0, 3.0),
    "sigmoid": (2.0, 10.0), "gelu": (2.0, 15.0), "gelu_backward": (3.0, 20.0), "dropout": (3.0, 10.0),
}  # fmt: skip

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        Family("matmul", ("batch", "m", "n", "k", "layout", "bias"), _matmul, _matmul_features),
        Family("convolution", _CONVOLUTION, _convolution(1), _convolution_features),
        Family("convolution_backward", _CONVOLUTION, _convolution(2), _convolution_features),
        Family("convolution_backward_weight", _CONVOLUTION, _convolution(1), _convolution_features),
        Family("batch_norm", ("n", "c", "hw"), _moved(3.0, 8.0)),
        Family("batch_norm_backward", ("n", "c", "hw"), _moved(5.0, 12.0)),
        Family("layer_norm", ("rows", "width"), _moved(3.0, 8.0)),
        Family("layer_norm_backward", ("rows", "width"), _moved(5.0, 12.0)),
        Family("max_pool", _POOL, _pool, _pool_features),
        Family("max_pool_backward", _POOL, _pool, _pool_features),
        Family("average_pool", _POOL, _pool, _pool_features),
        Family("average_pool_backward", _POOL, _pool, _pool_features),
        Family("softmax", ("rows", "width"), _moved(3.0, 12.0)),
        Family("softmax_backward", ("rows", "width"), _moved(4.0, 4.0)),
        Family("reduce", ("outer", "reduced", "inner"), _moved(1.0, 1.0)),
        Family("embedding", ("rows", "width", "vocabulary"), _lookup),
        Family("embedding_backward", ("rows", "width", "vocabulary"), _lookup_backward),
        Family("recurrent", _RECURRENT, _recurrent(1), _recurrent_features),
        Family("recurrent_backward", _RECURRENT, _recurrent(2), _recurrent_features),
        Family("attention", _ATTENTION, _attention(1.0), _attention_features),
        Family("attention_backward", _ATTENTION, _attention(2.5), _attention_features),
        *(Family(name, ("elements",), _moved(*work)) for name, work in POINTWISE.items()),
    )
}  # fmt: skip
