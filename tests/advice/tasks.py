"""Descriptions of tasks, with the family that the guide gives for each and the network that stands for it here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Described:
    name: str
    task: str
    settings: dict[str, Any]
    family: str
    network: str
    epochs: int | None = 1
    """For training its file in a test; None: all that it says."""


TWELVE = (
    Described(
        "rows of a table", "classify", {"kind": "table", "shape": "30", "samples": 5000, "classes": 2},
        "feed-forward", "mlp",
    ),
    Described(
        "handwritten digits", "classify", {"kind": "image", "shape": "1x28x28", "samples": 60_000, "classes": 10},
        "convolutional", "lenet5",
    ),
    Described(
        "small photographs", "classify", {"kind": "image", "shape": "3x32x32", "samples": 50_000, "classes": 10},
        "convolutional", "resnet20",
    ),
    Described(
        "large photographs", "classify", {"kind": "image", "shape": "3x96x96", "samples": 100_000, "classes": 100},
        "convolutional", "resnet18",
    ),
    Described(
        "images of which few have labels", "classify",
        {"kind": "image", "shape": "1x28x28", "samples": 60_000, "labels": 1000, "classes": 10},
        "deep belief network", "dbn", None,
    ),
    Described(
        "spoken words", "classify", {"kind": "audio", "shape": "100x40", "samples": 20_000, "classes": 12},
        "recurrent", "lstm",
    ),
    Described(
        "readings of a sensor", "sequence", {"kind": "table", "shape": "150x3", "samples": 8000, "classes": 5},
        "recurrent", "lstm",
    ),
    Described("text like a given one", "generate", {"kind": "text"}, "recurrent", "textlstm"),
    Described(
        "random new images", "generate", {"kind": "image", "shape": "1x28x28", "samples": 60_000},
        "generative adversarial network", "gan",
    ),
    Described(
        "images of a class that is asked for", "generate-to-spec",
        {"kind": "image", "shape": "1x28x28", "samples": 60_000, "classes": 10},
        "variational auto-encoder", "cvae",
    ),
    Described(
        "a short code for each row", "compress", {"kind": "table", "shape": "200", "samples": 10_000},
        "auto-encoder", "autoencoder",
    ),
    Described("expressions with brackets", "classify", {"kind": "trees"}, "recursive", "recursive"),
)  # fmt: skip
