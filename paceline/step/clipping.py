"""Clips a gradient by its global norm, with the formula of `torch.nn.utils.clip_grad_norm_`.

No value is read back to the host, so a captured or compiled step can clip too.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.linalg import vector_norm

BLOCK = 1 << 14
"""Elements per partial norm on a CPU: PyTorch adds up a long float32 vector with an error of 1e-5 per million."""


def clip_norm_(gradients: list[Tensor], max_norm: float) -> None:
    """Scales `gradients` in place so that their global norm is at most `max_norm`.

    They share one device, and none of them shares memory with another.
    """
    coefficient = clip_coefficient(global_norm(gradients), max_norm)
    if len(gradients) == 1:
        gradients[0].mul_(coefficient)
    else:
        torch._foreach_mul_(gradients, coefficient)


def global_norm(gradients: list[Tensor]) -> Tensor:
    """The norm of all `gradients` as one vector."""
    if len(gradients) == 1:
        return _norm(gradients[0])
    return _norm(torch.stack([_norm(gradient) for gradient in gradients]))


def clip_coefficient(norm: Tensor, max_norm: float) -> Tensor:
    """What a gradient of this norm is multiplied by: at most 1."""
    return torch.clamp(max_norm / (norm + 1e-6), max=1.0)


def _norm(gradient: Tensor) -> Tensor:
    count = gradient.numel()
    if count > BLOCK and not gradient.is_cuda:
        flat, whole = gradient.reshape(-1), count - count % BLOCK
        blocks = vector_norm(flat[:whole].view(-1, BLOCK), dim=1)
        gradient = torch.cat([blocks, vector_norm(flat[whole:]).reshape(1)])
    norm: Tensor = vector_norm(gradient)
    return norm
