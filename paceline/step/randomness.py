"""Randomness as a function of where one is: (seed, worker, epoch, step). Any driver can repeat any step."""

from __future__ import annotations

import torch
from torch import nn

MASK = (1 << 64) - 1


def mix(*numbers: int) -> int:
    """One well-spread 63-bit seed from several numbers (splitmix64, folded over them)."""
    state = 0x9E3779B97F4A7C15
    for number in numbers:
        state = (state + number * 0xBF58476D1CE4E5B9 + 0x9E3779B97F4A7C15) & MASK
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & MASK
        state ^= state >> 31
    return state >> 1


def default_generator(device: torch.device) -> torch.Generator:
    """The generator that dropout draws from on `device`."""
    if device.type == "cuda":
        torch.cuda.init()
        return torch.cuda.default_generators[device.index or 0]
    return torch.default_generator


def draws_random_numbers(network: nn.Module) -> bool:
    """Whether a built-in network's forward pass draws random numbers; other networks are assumed to."""
    dropouts = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)
    return any(
        (isinstance(m, dropouts) and m.p > 0) or (isinstance(m, nn.RNNBase) and m.dropout > 0)
        for m in network.modules()
    )
