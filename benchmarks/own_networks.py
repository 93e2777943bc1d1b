"""Two networks that are not in `paceline.networks`, as a user would write them: for predicting the unknown."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Separable(nn.Module):
    """A convolution a channel, then one across them, as in MobileNet."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(inputs, inputs, 3, stride=stride, padding=1, groups=inputs, bias=False)
        self.norm1 = nn.BatchNorm2d(inputs)
        self.pointwise = nn.Conv2d(inputs, outputs, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm1(self.depthwise(x)))
        return F.relu(self.norm2(self.pointwise(x)))


class SmallMobile(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 32, 3, stride=2, padding=1)
        widths = ((32, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1), (256, 512, 2))
        self.blocks = nn.Sequential(*(Separable(*width) for width in widths))
        self.head = nn.Linear(512, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(F.relu(self.stem(x)))
        return self.head(x.mean((2, 3)))  # type: ignore[no-any-return]


class Mixer(nn.Module):
    """Patches mixed along places, then along channels, as in MLP-Mixer."""

    def __init__(self, width: int = 192, depth: int = 4, patch: int = 4, side: int = 32) -> None:
        super().__init__()
        places = (side // patch) ** 2
        self.patches = nn.Conv2d(3, width, patch, stride=patch)
        self.norms1 = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))
        self.norms2 = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))
        self.along1 = nn.ModuleList(nn.Linear(places, 2 * places) for _ in range(depth))
        self.along2 = nn.ModuleList(nn.Linear(2 * places, places) for _ in range(depth))
        self.across1 = nn.ModuleList(nn.Linear(width, 4 * width) for _ in range(depth))
        self.across2 = nn.ModuleList(nn.Linear(4 * width, width) for _ in range(depth))
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        for number in range(len(self.norms1)):
            mixed = self.norms1[number](x).transpose(1, 2)
            x = x + self.along2[number](F.gelu(self.along1[number](mixed))).transpose(1, 2)
            x = x + self.across2[number](F.gelu(self.across1[number](self.norms2[number](x))))
        return self.head(x.mean(1))  # type: ignore[no-any-return]


def mobile() -> nn.Module:
    return SmallMobile()


def mixer() -> nn.Module:
    return torch.nn.Sequential(Mixer())
