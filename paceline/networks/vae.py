"""The variational auto-encoder (Kingma & Welling 2014) and its conditional form (Sohn et al. 2015).

The encoder gives a normal distribution of codes for each sample, the decoder the sample of a code. A code drawn from
the standard normal distribution becomes a new sample, in the conditional form one of the class that is asked for.
The decoder gives the probability of each number of a sample to be at the upper end of the range of the data, as in the
first paper; in between, as mean.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from paceline.errors import NetworkError
from paceline.networks.autoencoder import layers_of, principal, reconstructions, squared_error
from paceline.networks.checks import positive, positives
from paceline.networks.criterion import Criterion, SampleMetric
from paceline.networks.learned import ImageGrid, Panel, Scatter
from paceline.networks.value_range import ValueRange

ROWS, COLUMNS = 6, 10
"""Of generated samples in a figure."""


def vae(
    shape: tuple[int, ...],
    classes: int,
    *,
    dropout: float | None = None,
    activation: str | None = None,
    hidden: int | Sequence[int] = (256, 128),
    code: int = 20,
) -> VariationalAutoencoder:
    """`hidden` are the layers of the encoder; the decoder has them in reverse."""
    return _made(shape, 0, hidden, code, activation or "relu", dropout or 0.0)


def cvae(
    shape: tuple[int, ...],
    classes: int,
    *,
    dropout: float | None = None,
    activation: str | None = None,
    hidden: int | Sequence[int] = (256, 128),
    code: int = 20,
) -> VariationalAutoencoder:
    """Encoder and decoder have the class as further inputs, one for each."""
    return _made(shape, classes, hidden, code, activation or "relu", dropout or 0.0)


def _made(
    shape: tuple[int, ...], classes: int, hidden: int | Sequence[int], code: int, activation: str, dropout: float
) -> VariationalAutoencoder:
    inputs, units = math.prod(shape), positives("hidden", hidden)
    distribution = nn.Linear(units[-1], 2 * positive("code", code))
    encoder = layers_of((inputs + classes, *units), activation, dropout, distribution)
    decoder = layers_of((code + classes, *units[::-1]), activation, dropout, nn.Linear(units[0], inputs))
    return VariationalAutoencoder(shape, code, classes, encoder, decoder)


class VariationalAutoencoder(nn.Module):
    def __init__(self, shape: tuple[int, ...], code: int, classes: int, encoder: nn.Module, decoder: nn.Module) -> None:
        super().__init__()
        self.shape, self.code, self.classes = shape, code, classes
        self.encoder, self.decoder, self.range = encoder, decoder, ValueRange()
        self.metric = SampleMetric("reconstruction error", lambda x, y: squared_error(self(x, y), x))

    def forward(self, x: Tensor, labels: Tensor | None = None) -> Tensor:
        """The reconstruction from the most likely code; without labels, as if each class were as likely."""
        return self.decode(self.encode(x, labels)[0], labels)

    def encode(self, x: Tensor, labels: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Mean and logarithm of the variance of each sample's codes."""
        mean, log_variance = self.encoder(self._with_class(x.flatten(1), labels)).chunk(2, dim=1)
        return mean, log_variance

    def decode(self, codes: Tensor, labels: Tensor | None = None) -> Tensor:
        """The samples of codes."""
        return self.range.from_unit(torch.sigmoid(self._logits(codes, labels))).view(-1, *self.shape)

    def _logits(self, codes: Tensor, labels: Tensor | None) -> Tensor:
        return self.decoder(self._with_class(codes, labels))  # type: ignore[no-any-return]

    def _with_class(self, values: Tensor, labels: Tensor | None) -> Tensor:
        if not self.classes:
            return values
        if labels is None:
            chosen = values.new_full((len(values), self.classes), 1 / self.classes)
        else:
            chosen = F.one_hot(labels, self.classes).to(values.dtype)
        return torch.cat([values, chosen], dim=1)

    def criteria(self) -> list[Criterion]:
        return [Criterion("bound", list(self.parameters()), self.loss)]

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """The negative evidence lower bound in nats per number of a sample."""
        self.range.widen(x)
        mean, log_variance = self.encode(x, y)
        codes = mean + torch.exp(0.5 * log_variance) * torch.randn_like(mean)
        wanted = self.range.to_unit(x).flatten(1)
        surprise = F.binary_cross_entropy_with_logits(self._logits(codes, y), wanted)
        divergence = 0.5 * (mean.square() + log_variance.exp() - log_variance - 1).sum(1).mean()
        return surprise + divergence / math.prod(self.shape)

    @torch.no_grad()
    def generate(
        self, count: int, labels: int | Sequence[int] | Tensor | None = None, generator: torch.Generator | None = None
    ) -> Tensor:
        """New samples, [count, *shape]; `labels` are the class of each, or one for all (None: the classes in turn).

        `generator` is on the CPU, wherever the network is; None: PyTorch's default.
        """
        place = next(self.parameters())
        codes = torch.randn(count, self.code, generator=generator).to(place)
        return self.decode(codes, self._labels(count, labels, place.device))

    def _labels(self, count: int, labels: int | Sequence[int] | Tensor | None, device: torch.device) -> Tensor | None:
        if not self.classes:
            if labels is not None:
                raise NetworkError(f"labels={labels!r:.60} cannot be asked for: this network has no classes; use cvae")
            return None
        wanted = torch.arange(count) % self.classes if labels is None else torch.as_tensor(labels)
        if wanted.is_floating_point() or wanted.dim() > 1 or (wanted.dim() == 1 and len(wanted) != count):
            raise NetworkError(f"labels={labels!r:.60} must be one whole number, or one for each of {count} samples")
        if wanted.numel() and not 0 <= int(wanted.min()) <= int(wanted.max()) < self.classes:
            raise NetworkError(f"labels={labels!r:.60} must be classes from 0 to {self.classes - 1}")
        return wanted.to(device).expand(count)

    def learned(self, x: Tensor, y: Tensor) -> Sequence[Panel]:
        """Samples above their reconstructions, new samples, and the two main directions of the codes."""
        codes, _ = self.encode(x, y)
        scatter = Scatter("Codes of test samples", principal(codes, 2), y, "first component", "second component")
        if len(self.shape) != 3:
            return [scatter]
        return [reconstructions(x, self.decode(codes, y)), self._generated(codes), scatter]

    def _generated(self, like: Tensor) -> ImageGrid:
        if not self.classes:
            samples = self.generate(ROWS * COLUMNS).unflatten(0, (ROWS, COLUMNS))
            return ImageGrid("New samples, from random codes", samples)
        rows = min(self.classes, COLUMNS)
        codes = torch.randn(COLUMNS, self.code, dtype=like.dtype, device=like.device).repeat(rows, 1)
        labels = torch.arange(rows, device=like.device).repeat_interleave(COLUMNS)
        samples = self.decode(codes, labels).unflatten(0, (rows, COLUMNS))
        title = "New samples: a class per row, a random code per column"
        return ImageGrid(title, samples, [f"class {row}" for row in range(rows)])
