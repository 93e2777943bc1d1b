"""Flat tensors as pieces small enough to travel within a call."""

from __future__ import annotations

import pytest
import torch

from paceline.training.drivers.ray.pieces import INLINE_BYTES, PIECE_BYTES, Pieces


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [0, 1, 1000, PIECE_BYTES // 4, PIECE_BYTES // 4 + 1, INLINE_BYTES // 8])
def test_pieces_are_small_and_put_together_again(size, dtype):
    pieces, flat = Pieces(size, dtype), torch.randn(size, dtype=dtype)
    cut = pieces.cut(flat)
    assert len(cut) == len(pieces) >= 1
    assert max(piece.nbytes for piece in cut) <= PIECE_BYTES
    out = torch.zeros(size, dtype=dtype)
    pieces.put_into(out, cut)
    assert torch.equal(out, flat) and torch.equal(pieces.joined(cut), flat)


def test_a_large_vector_is_one_piece_and_not_copied():
    flat = torch.randn(INLINE_BYTES // 4 + 1)
    pieces = Pieces(len(flat), flat.dtype)
    (piece,) = pieces.cut(flat)
    assert pieces.joined([piece]).data_ptr() == flat.data_ptr()
