"""How the members of a group divide a vector: each averages, pushes and fetches its part of it.

Parts begin at multiples of `ALIGNED`, so that processors add up every number as they would in the whole vector.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from paceline.strategy.gradient_mean import mean_of_buffers, weighted_mean
from paceline.strategy.layout import Layout

ALIGNED = 64


Piece = tuple[int, int]
"""Where a piece of the vector begins and ends."""


def vector_pieces(layout: Layout, buckets: Sequence[Piece] = ()) -> list[Piece]:
    """What is averaged at once: the parameters of each phase, or each bucket of them, and the buffers."""
    phases = layout.phase_ends() if layout.divided else [(0, layout.parameters)]
    return [(first, last) for first, last in (*(buckets or phases), (layout.parameters, layout.size)) if first < last]


class VectorParts:
    def __init__(self, layout: Layout, members: int, pieces: Sequence[Piece] | None = None) -> None:
        """Of these pieces of the vector; None: of all of it, with each phase as one piece."""
        self.layout, self.members = layout, members
        self.pieces = vector_pieces(layout) if pieces is None else list(pieces)
        self.lengths = [-(-(last - first) // (members * ALIGNED)) * ALIGNED for first, last in self.pieces]
        self.size = sum(self.lengths)
        """Of every part; those of the last members may have unused numbers."""

    def _slices(self, member: int) -> Iterable[tuple[slice, slice]]:
        """The slices of a member's part, and their positions in the vector."""
        start = 0
        for (first, last), length in zip(self.pieces, self.lengths, strict=True):
            begin, end = (min(first + number * length, last) for number in (member, member + 1))
            yield slice(start, start + end - begin), slice(begin, end)
            start += length

    def of(self, member: int, vector: Tensor) -> Tensor:
        """A member's part; a view of the vector where that is possible."""
        if len(self.pieces) == 1:
            found = vector[member * self.size : (member + 1) * self.size]
            if len(found) == self.size:
                return found
        return self.copy(member, vector, torch.zeros(self.size, dtype=vector.dtype, device=vector.device))

    def copy(self, member: int, vector: Tensor, out: Tensor) -> Tensor:
        for mine, whole in self._slices(member):
            out[mine] = vector[whole]
        return out

    def put(self, member: int, part: Tensor, out: Tensor) -> None:
        """Writes a member's part into a vector."""
        for mine, whole in self._slices(member):
            out[whole] = part[mine]

    def mean(self, member: int, parts: Sequence[Tensor], weights: Sequence[float], out: Tensor) -> Tensor:
        """The mean of one part of several payloads, summed in order: bitwise what the server computes."""
        for mine, whole in self._slices(member):
            values = [part[mine] for part in parts]
            if whole.start < self.layout.parameters:
                weighted_mean(values, weights, out[mine])
            else:
                mean_of_buffers(values, out[mine])
        return out
