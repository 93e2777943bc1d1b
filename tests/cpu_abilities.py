"""What PyTorch can do on this CPU, asked of PyTorch alone, for tests of what Paceline adds to it."""

from __future__ import annotations

from functools import cache

import torch


@cache
def has_bfloat16_lstm() -> bool:
    """Some CPUs have no such LSTM: PyTorch fails with "could not create a primitive descriptor"."""
    try:
        with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
            torch.nn.LSTM(8, 8)(torch.zeros(2, 2, 8))
    except RuntimeError:
        return False
    return True
