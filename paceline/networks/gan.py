"""The generative adversarial network (Goodfellow et al. 2014) with convolutions (DCGAN, Radford et al. 2016).

A generator turns random codes into images, a discriminator tells them from those of the data, and each is trained
against the other: two criteria, whose parameters have nothing in common. The discriminator has no batch norm, so what
it says of an image does not depend on the others of its batch.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from paceline.networks.activation import activation_layer
from paceline.networks.checks import image_shape, positive, positives
from paceline.networks.criterion import Criterion, SampleMetric
from paceline.networks.learned import ImageGrid, Panel
from paceline.networks.strided import doubling_layers, halving, sides_of
from paceline.networks.value_range import ValueRange

ROWS, COLUMNS = 6, 8
"""Of images in each part of a figure."""
COMPARED = 1000
"""New samples that each test sample is compared with."""


def gan(
    shape: tuple[int, ...],
    classes: int,
    *,
    dropout: float | None = None,
    activation: str | None = None,
    channels: int | Sequence[int] = (32, 64),
    code: int = 64,
) -> AdversarialNetwork:
    """`channels` are those of the discriminator's convolutions; the generator has them in reverse."""
    maps = positives("channels", channels)
    image_shape("gan", shape, at_least=2 ** len(maps))
    return AdversarialNetwork(
        shape,
        positive("code", code),
        _generator(shape, maps, code, activation or "relu"),
        _discriminator(shape, maps, activation, dropout or 0.0),
    )


def _generator(shape: tuple[int, ...], channels: tuple[int, ...], code: int, activation: str) -> nn.Sequential:
    sides = sides_of(shape, len(channels))
    first = (channels[-1], *sides[-1])
    parts: OrderedDict[str, nn.Module] = OrderedDict()
    parts["fc"] = nn.Linear(code, math.prod(first), bias=False)
    parts["unflatten"] = nn.Unflatten(1, first)
    parts["norm"] = nn.BatchNorm2d(channels[-1])
    parts["activation"] = activation_layer(activation)
    between = [("norm", nn.BatchNorm2d), ("activation", lambda _: activation_layer(activation))]
    parts.update(doubling_layers((*channels[::-1], shape[0]), sides, between))
    return nn.Sequential(parts)


def _discriminator(
    shape: tuple[int, ...], channels: tuple[int, ...], activation: str | None, dropout: float
) -> nn.Sequential:
    between = [
        ("activation", lambda _: nn.LeakyReLU(0.2) if activation is None else activation_layer(activation)),
        ("dropout", lambda _: nn.Dropout(dropout) if dropout else None),
    ]
    parts = halving((shape[0], *channels), between)
    parts["flatten"] = nn.Flatten()
    parts["output"] = nn.Linear(channels[-1] * math.prod(sides_of(shape, len(channels))[-1]), 1)
    return nn.Sequential(parts)


class AdversarialNetwork(nn.Module):
    def __init__(self, shape: tuple[int, ...], code: int, generator: nn.Module, discriminator: nn.Module) -> None:
        super().__init__()
        self.shape, self.code, self.generator, self.discriminator = shape, code, generator, discriminator
        self.range = ValueRange()
        self.metric = SampleMetric("distance to nearest new sample", lambda x, y: self._distances(x))

    def forward(self, x: Tensor) -> Tensor:
        """What the discriminator thinks of images: above 0, that they are from the data."""
        return self.discriminator(x)  # type: ignore[no-any-return]

    def criteria(self) -> list[Criterion]:
        return [
            Criterion("discriminator", list(self.discriminator.parameters()), self._discriminator_loss),
            Criterion("generator", list(self.generator.parameters()), self._generator_loss),
        ]

    def _discriminator_loss(self, x: Tensor, y: Tensor) -> Tensor:
        with torch.no_grad():
            self.range.widen(x)
            images = self._images(torch.randn(len(x), self.code, dtype=x.dtype, device=x.device))
        real, new = self.discriminator(torch.cat([x, images])).split(len(x))
        return F.softplus(-real).mean() + F.softplus(new).mean()

    def _generator_loss(self, x: Tensor, y: Tensor) -> Tensor:
        """Lower where the discriminator takes new images for those of the data."""
        images = self._images(torch.randn(len(x), self.code, dtype=x.dtype, device=x.device))
        return F.softplus(-self.discriminator(images)).mean()

    def _images(self, codes: Tensor) -> Tensor:
        return self.range.from_unit(torch.sigmoid(self.generator(codes)))

    @torch.no_grad()
    def generate(self, count: int, generator: torch.Generator | None = None) -> Tensor:
        """New images, [count, *shape], as in evaluation. `generator` is on the CPU; None: PyTorch's default."""
        training = self.training
        codes = torch.randn(count, self.code, generator=generator).to(next(self.parameters()))
        try:
            return self.eval()._images(codes)
        finally:
            self.train(training)

    def _distances(self, x: Tensor) -> Tensor:
        """The squared distance of each sample to the nearest of some new ones, per pixel."""
        images = self.generate(COMPARED)
        return torch.cdist(x.flatten(1), images.flatten(1)).amin(1).square() / math.prod(self.shape)

    def learned(self, x: Tensor, y: Tensor) -> Sequence[Panel]:
        """New images beside those of the data, and what lies between random codes."""
        columns = min(COLUMNS, len(x))
        rows = min(ROWS, len(x) // columns)
        new = self.generate(rows * columns).unflatten(0, (rows, columns))
        ends = torch.randn(2, rows, 1, self.code, dtype=x.dtype, device=x.device)
        weights = torch.linspace(0, 1, columns, dtype=x.dtype, device=x.device).unsqueeze(1)
        between = self._images(torch.lerp(ends[0], ends[1], weights).flatten(0, 1)).unflatten(0, (rows, columns))
        return [
            ImageGrid("New samples, from random codes", new),
            ImageGrid("Test samples, for comparison", x[: rows * columns].unflatten(0, (rows, columns))),
            ImageGrid("From one random code to another", between),
        ]
