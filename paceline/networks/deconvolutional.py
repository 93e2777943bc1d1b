"""The deconvolutional network (Zeiler et al. 2010, Dosovitskiy et al. 2015): a code becomes an image step by step.

Transposed convolutions double the sides of the image at each step; the code comes from convolutions that halve them.
The loss is the mean squared error per pixel, so it can be compared with that of principal components.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from paceline.networks.activation import activation_layer
from paceline.networks.autoencoder import COLUMNS, principal, reconstructions, squared_error
from paceline.networks.checks import image_shape, positive, positives
from paceline.networks.criterion import Criterion, SampleMetric
from paceline.networks.learned import ImageGrid, Panel, Scatter
from paceline.networks.strided import doubling_layers, halving, sides_of


def deconvolutional(
    shape: tuple[int, ...],
    classes: int,
    *,
    dropout: float | None = None,
    activation: str | None = None,
    channels: int | Sequence[int] = (16, 32),
    hidden: int = 128,
    code: int = 20,
) -> DeconvolutionalNetwork:
    """`channels` are those of the convolutions, `hidden` the units between them and the code; the way up has them in
    reverse."""
    maps, name = positives("channels", channels), activation or "relu"
    image_shape("deconvolutional", shape, at_least=2 ** len(maps))
    sides, between = sides_of(shape, len(maps)), [("activation", lambda _: activation_layer(name))]
    first = (maps[-1], *sides[-1])
    encoder = halving((shape[0], *maps), between)
    encoder["flatten"] = nn.Flatten()
    encoder["fc"] = nn.Linear(math.prod(first), positive("hidden", hidden))
    encoder["activation"] = activation_layer(name)
    if dropout:
        encoder["dropout"] = nn.Dropout(dropout)
    encoder["code"] = nn.Linear(hidden, positive("code", code))
    decoder: OrderedDict[str, nn.Module] = OrderedDict()
    decoder["fc1"], decoder["activation_fc1"] = nn.Linear(code, hidden), activation_layer(name)
    decoder["fc2"], decoder["activation_fc2"] = nn.Linear(hidden, math.prod(first)), activation_layer(name)
    decoder["unflatten"] = nn.Unflatten(1, first)
    decoder.update(doubling_layers((*maps[::-1], shape[0]), sides, between))
    return DeconvolutionalNetwork(nn.Sequential(encoder), nn.Sequential(decoder))


class DeconvolutionalNetwork(nn.Module):
    def __init__(self, encoder: nn.Sequential, decoder: nn.Sequential) -> None:
        super().__init__()
        self.encoder, self.decoder = encoder, decoder
        self.metric = SampleMetric("reconstruction error", lambda x, y: squared_error(self(x), x))

    def forward(self, x: Tensor) -> Tensor:
        """The reconstruction."""
        return self.decoder(self.encoder(x))  # type: ignore[no-any-return]

    def criteria(self) -> list[Criterion]:
        return [Criterion("reconstruct", list(self.parameters()), lambda x, y: F.mse_loss(self(x), x))]

    def learned(self, x: Tensor, y: Tensor) -> Sequence[Panel]:
        """Samples above their reconstructions, the codes' main directions, and how an image rises from its code."""
        codes = self.encoder(x)
        scatter = Scatter("Codes of test samples", principal(codes, 2), y, "first component", "second component")
        return [reconstructions(x, self.decoder(codes)), scatter, self._rising(codes[:COLUMNS])]

    def _rising(self, codes: Tensor) -> ImageGrid:
        """The mean of the maps after each step, all drawn in the size of the image."""
        steps: list[Tensor] = []
        values = codes
        for layer in self.decoder:
            values = layer(values)
            if isinstance(layer, nn.Unflatten | nn.ConvTranspose2d):
                steps.append(values)
        size = steps[-1].shape[-2:]
        means = [_from_0_to_1(step.mean(1, keepdim=True)) for step in steps]
        rows = [F.interpolate(mean, size=size) for mean in means]
        names = [f"{step.shape[-2]} x {step.shape[-1]}" for step in steps]
        return ImageGrid("From code to image: mean of the maps after each step", torch.stack(rows), names)


def _from_0_to_1(values: Tensor) -> Tensor:
    low, high = values.aminmax()
    return (values - low) / (high - low).clamp(min=1e-9)
