"""Small networks that a calibration measures as a whole. They cover common layers and resemble no real model."""

from __future__ import annotations

from torch import nn

from paceline.cost.reference_convolutions import (
    bottleneck,
    concatenating,
    convolutional,
    deep_convolutional,
    depthwise,
    group_normed,
    residual,
    separable,
    small_convolutional,
    small_residual,
)
from paceline.cost.reference_sequences import (
    attention,
    deep_attention,
    filtered,
    gated,
    language,
    patches,
    recurrent,
    small_attention,
    small_recurrent,
)

__all__ = [
    "attention", "bottleneck", "concatenating", "convolutional", "deep_attention", "deep_convolutional", "depthwise",
    "filtered", "gated", "group_normed", "language", "patches", "perceptron", "recurrent", "residual", "separable",
    "small_attention", "small_convolutional", "small_perceptron", "small_recurrent", "small_residual",
    "tiny_perceptron", "wide_perceptron",
]  # fmt: skip


def perceptron() -> nn.Module:
    """A plain chain with a hand-written gradient; for samples of 3 x 40 x 40."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(4800, 96), nn.Tanh(), nn.Dropout(0.2), nn.Linear(96, 48), nn.ReLU(), nn.Linear(48, 10),
    )  # fmt: skip


def small_perceptron() -> nn.Module:
    """A chain so small that one thread computes it; for samples of 3 x 40 x 40."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(4800, 24), nn.ReLU(), nn.Linear(24, 64), nn.Sigmoid(), nn.Dropout(0.2),
        nn.Linear(64, 10),
    )  # fmt: skip


def tiny_perceptron() -> nn.Module:
    """A chain that fits into the caches whole; for samples of 1 x 10 x 10."""
    return nn.Sequential(nn.Flatten(), nn.Linear(100, 24), nn.Tanh(), nn.Linear(24, 10))


def wide_perceptron() -> nn.Module:
    """A chain whose parameters take longer to update than its samples to multiply; for samples of 3 x 40 x 40."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(4800, 640), nn.ReLU(), nn.Linear(640, 320), nn.ReLU(), nn.Linear(320, 10),
    )  # fmt: skip


TINY = "synthetic:1x10x10/10:4096"
ROWS, TOKENS = "synthetic:3x40x40/10:2048", "tokens:320/6000:256"
MANY_ROWS = "synthetic:3x40x40/10:8192"
"""Short iterations on a GPU need epochs of many, or the start of an epoch would be timed."""
IMAGES, SMALL_IMAGES = "synthetic:3x144x144/100:512", "synthetic:3x72x72/100:256"
REFERENCES: dict[str, dict[str, tuple[str, tuple[int, ...]]]] = {
    "cpu": {
        "residual": (ROWS, (8, 32)), "convolutional": (ROWS, (16, 64)), "perceptron": (ROWS, (32, 128)),
        "attention": (ROWS, (8, 32)), "recurrent": (ROWS, (16, 64)), "bottleneck": (SMALL_IMAGES, (2, 8)),
        "separable": (SMALL_IMAGES, (2, 8)), "concatenating": (SMALL_IMAGES, (2, 8)), "patches": (IMAGES, (1, 4)),
        "wide_perceptron": (ROWS, (16, 256)), "depthwise": (SMALL_IMAGES, (4, 16)),
        "small_convolutional": (ROWS, (32, 8)), "small_residual": (ROWS, (8, 2)),
        "small_perceptron": (ROWS, (64, 16)), "small_attention": (ROWS, (8, 2)), "small_recurrent": (ROWS, (16, 4)),
        "tiny_perceptron": (TINY, (32, 128)),
    },
    "cuda": {
        "residual": (ROWS, (32, 256)), "convolutional": (ROWS, (64, 512)), "perceptron": (MANY_ROWS, (64, 256)),
        "attention": (ROWS, (32, 256)), "recurrent": (ROWS, (64, 256)), "bottleneck": (IMAGES, (16, 96)),
        "separable": (IMAGES, (16, 96)), "concatenating": (IMAGES, (16, 96)), "patches": (IMAGES, (16, 96)),
        "language": (TOKENS, (4, 24)), "group_normed": (IMAGES, (16, 64)), "gated": (IMAGES, (16, 96)),
        "filtered": (IMAGES, (8, 48)), "deep_convolutional": (ROWS, (32,)), "deep_attention": (ROWS, (32,)),
    },
}  # fmt: skip
"""By device: the data and batch sizes of each network."""
WITH_ADAM = ("attention", "recurrent", "small_convolutional", "small_attention")
"""On a CPU these are updated by Adam, which has many operations, the others by SGD."""
QUICK_REFERENCES = (
    "residual", "convolutional", "perceptron", "attention", "recurrent",
    "small_convolutional", "small_residual", "small_perceptron", "small_attention", "tiny_perceptron",
)  # fmt: skip
"""A quick calibration measures these, at their first batch size."""
