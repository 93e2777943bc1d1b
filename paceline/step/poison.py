"""Fills the free memory of PyTorch's GPU allocator with NaN, so that reading memory that was never written shows.

A compiled kernel that reads a buffer before writing it gives the right result as long as the buffer happens to hold
zeros, or what the call before left there. Comparing two results does not find that; comparing after this does.
"""

from __future__ import annotations

import torch


def poison_free_memory(device: torch.device) -> None:
    """Does nothing on a CPU, whose allocator cannot be asked for its free blocks."""
    if device.type != "cuda":
        return
    torch.cuda.synchronize(device)
    index = torch.cuda.current_device() if device.index is None else device.index
    segments = [segment for segment in torch.cuda.memory_snapshot() if segment["device"] == index]
    free = [block["size"] for segment in segments for block in segment["blocks"] if block["state"] == "inactive"]
    # Largest first: the allocator gives out the smallest block that is large enough.
    held = [torch.full((size // 4,), float("nan"), device=device) for size in sorted(free, reverse=True)]
    torch.cuda.synchronize(device)
    del held
