"""Turns bytes into numbers with mean 0 and deviation 1 a channel, on whatever device they are."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(frozen=True)
class Normalise:
    """`(x / 255 - mean) / deviation` for bytes of shape [batch, channel, ...]."""

    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    _constants: dict[tuple[torch.device, torch.dtype, int], tuple[Tensor, Tensor]] = field(
        default_factory=dict, compare=False, repr=False
    )

    def __call__(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        dtype = torch.get_default_dtype()
        key = (x.device, dtype, x.dim())
        # Made once a device: a copy in every step would make the host wait.
        if key not in self._constants:
            self._constants[key] = self._made(*key)
        scale, shift = self._constants[key]
        return torch.addcmul(shift, x.to(dtype), scale), y

    def __reduce__(self) -> tuple[type[Normalise], tuple[tuple[float, ...], tuple[float, ...]]]:
        # Another process makes constants of its own, on its own devices.
        return Normalise, (self.mean, self.deviation)

    def _made(self, device: torch.device, dtype: torch.dtype, dimensions: int) -> tuple[Tensor, Tensor]:
        deviation = torch.tensor(self.deviation, dtype=torch.float64)
        scale = 1.0 / (255.0 * deviation)
        shift = -torch.tensor(self.mean, dtype=torch.float64) / deviation
        shape = (1, -1, *([1] * (dimensions - 2)))
        return scale.reshape(shape).to(device, dtype), shift.reshape(shape).to(device, dtype)


IMAGENET = Normalise((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
CIFAR10 = Normalise((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
