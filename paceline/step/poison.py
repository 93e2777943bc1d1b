"""Fills the free memory of PyTorch's GPU allocator with NaN, so that reading memory that was never written shows.

A compiled kernel that reads a buffer before writing it gives the right result as long as the buffer happens to hold
zeros, or what the call before left there. Comparing two results does not find that; comparing after this does.
"""

from __future__ import annotations

from contextlib import suppress

import torch
from torch import Tensor

_DEFAULT_POOL = (0, 0)


def poison_free_memory(device: torch.device) -> None:
    """Does nothing on a CPU, whose allocator cannot be asked for its free blocks."""
    if device.type != "cuda":
        return
    torch.cuda.synchronize(device)
    index = torch.cuda.current_device() if device.index is None else device.index
    held: list[Tensor] = []
    with suppress(torch.OutOfMemoryError):  # where the blocks no longer fit together, what is filled so far is enough
        held.extend(torch.full((size // 4,), float("nan"), device=device) for size in _free_blocks(index))
    torch.cuda.synchronize(device)


def _free_blocks(index: int) -> list[int]:
    """Sizes in bytes, largest first: the allocator gives out the smallest block that is large enough.

    Blocks of captured graphs are left out: only those graphs get them.
    """
    segments = [segment for segment in torch.cuda.memory_snapshot() if segment["device"] == index]
    shared = [segment for segment in segments if tuple(segment.get("segment_pool_id", _DEFAULT_POOL)) == _DEFAULT_POOL]
    blocks = (block for segment in shared for block in segment["blocks"])
    return sorted((block["size"] for block in blocks if block["state"] == "inactive"), reverse=True)
