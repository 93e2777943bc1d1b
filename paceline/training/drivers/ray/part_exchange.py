"""An all-to-all between the members of a group: each receives its part of a piece of every member's payload."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from paceline.training.drivers.ray.vector_parts import VectorParts

NOTES = 4
"""Whole numbers that travel with each part of the last piece: its first batch, samples, steps, and whether it is
finite."""


class PartExchange:
    def __init__(self, parts: VectorParts, rank: int, dtype: torch.dtype, device: torch.device, notes: int = 0) -> None:
        self.parts, self.rank = parts, rank
        row = parts.size + notes * 8 // dtype.itemsize
        self.sent, self.received = (torch.zeros(parts.members, row, dtype=dtype, device=device) for _ in range(2))

    def put(self, payload: Tensor) -> None:
        for rank in range(self.parts.members):
            self.parts.copy(rank, payload, self.sent[rank, : self.parts.size])

    def put_notes(self, notes: list[int]) -> None:
        self.sent[:, self.parts.size :] = torch.tensor(notes).view(self.sent.dtype)

    def begin(self, group: Any) -> Any:
        return group.alltoall_base(self.received.view(-1), self.sent.view(-1), [], [])

    def notes(self) -> list[list[int]]:
        """Those of every member."""
        found: list[list[int]] = self.received[:, self.parts.size :].cpu().contiguous().view(torch.int64).tolist()
        return found

    def mean(self, order: list[int], weights: list[float], out: Tensor) -> None:
        """This member's part of the mean, summed in this order of the members."""
        self.parts.mean(self.rank, [self.received[rank] for rank in order], weights, out)
