"""The panels of a figure that shows what a network learned, as plain tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from torch import Tensor

FIGURE_SAMPLES = 1000
"""Test samples that `learned` is given, if there are as many."""


@dataclass(frozen=True, eq=False)
class ImageGrid:
    """Images in rows and columns, as a tensor [rows, columns, channels, height, width]."""

    title: str
    images: Tensor
    rows: Sequence[str] = ()
    """A name for each row; likewise for each column."""
    columns: Sequence[str] = ()


@dataclass(frozen=True, eq=False)
class Scatter:
    """Points in the plane, [points, 2], coloured by label."""

    title: str
    points: Tensor
    labels: Tensor
    x: str = ""
    y: str = ""


@dataclass(frozen=True, eq=False)
class Curves:
    """Named lines, each [points, 2]."""

    title: str
    lines: Mapping[str, Tensor]
    x: str = ""
    y: str = ""


@dataclass(frozen=True, eq=False)
class Heatmap:
    """A matrix shown in colours."""

    title: str
    values: Tensor
    rows: Sequence[str] = ()
    columns: Sequence[str] = ()
    x: str = ""
    y: str = ""


Panel = ImageGrid | Scatter | Curves | Heatmap


@runtime_checkable
class HasFigure(Protocol):
    """A network that draws its own figure."""

    def learned(self, x: Tensor, y: Tensor) -> Sequence[Panel]:
        """The panels of the figure, from test samples and their labels; the network is in evaluation mode."""
        ...
