"""The restricted Boltzmann machine (Smolensky 1986), trained by contrastive divergence (Hinton 2002).

Visible units v in [0, 1] and hidden units h have the energy E(v, h) = -b'v - c'h - h'Wv. Summed over h, a sample has
the free energy F(v) = -b'v - sum_j log(1 + exp(c_j + W_j v)); likely samples have a low one. CD-k lowers it for samples
of the data and raises it for what k steps of Gibbs sampling make of them. Where these steps begin with noise instead
(Decelle, Furtlehner & Seoane 2021), the machine learns to make samples of noise in k steps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from paceline.errors import NetworkError
from paceline.networks.checks import no_activation, no_dropout, positive
from paceline.networks.criterion import Criterion, SampleMetric
from paceline.networks.learned import Curves, ImageGrid, Panel

INITIAL_STD = 0.01
"""Of the weights, as Hinton's guide (2010) has it."""
STARTS = ("noise", "data")
"""Where Gibbs chains begin in training."""
SAMPLING_STEPS = 1000
"""Of a Gibbs chain for new samples, where training does not say how many make one."""
ROWS, COLUMNS = 6, 10
"""Of filters and of samples in a figure."""
INTERVALS = 40
"""Of free energies in a figure."""


def rbm(
    shape: tuple[int, ...],
    classes: int,
    *,
    dropout: float | None = None,
    activation: str | None = None,
    hidden: int = 256,
    k: int = 10,
    start: str = "noise",
) -> BoltzmannMachine:
    """`k` is the number of Gibbs steps; `start="data"` is Hinton's contrastive divergence."""
    no_activation("rbm", activation)
    no_dropout("rbm", dropout)
    if start not in STARTS:
        raise NetworkError(f"option start = {start!r} must be one of {', '.join(STARTS)}")
    return BoltzmannMachine(shape, positive("hidden", hidden), positive("k", k), start)


class Visible(nn.Module):
    """From hidden to visible units: the biases are its own, the weights those of the way up."""

    def __init__(self, units: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(units))

    def forward(self, hidden: Tensor, weight: Tensor) -> Tensor:
        return F.linear(hidden, weight.t(), self.bias)


class BoltzmannMachine(nn.Module):
    def __init__(self, shape: tuple[int, ...], hidden: int, k: int, start: str) -> None:
        super().__init__()
        self.shape, self.k, self.start = shape, k, start
        self.hidden = nn.Linear(math.prod(shape), hidden)
        self.visible = Visible(math.prod(shape))
        nn.init.normal_(self.hidden.weight, std=INITIAL_STD)
        nn.init.zeros_(self.hidden.bias)
        self.metric = SampleMetric("reconstruction error", self.reconstruction_error)

    def check_inputs(self, x: Tensor) -> None:
        if x.min() < 0 or x.max() > 1:
            raise NetworkError(
                f"it takes numbers in [0, 1], these are from {float(x.min()):.3g} to {float(x.max()):.3g}; "
                "scale the data, or use autoencoder"
            )

    def forward(self, x: Tensor) -> Tensor:
        """The probabilities of the visible units, from those of the hidden ones: a reconstruction."""
        return self.down(self.up(x.flatten(1))).view(x.shape)

    def up(self, visible: Tensor) -> Tensor:
        """The probability of each hidden unit."""
        return torch.sigmoid(self.hidden(visible))

    def down(self, hidden: Tensor) -> Tensor:
        """The probability of each visible unit."""
        return torch.sigmoid(self.visible(hidden, self.hidden.weight))

    def gibbs_step(self, visible: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """From probabilities of the visible units to new ones, by way of drawn visible and hidden units."""
        return self.down(drawn(self.up(drawn(visible, generator)), generator))

    def free_energy(self, x: Tensor) -> Tensor:
        """F(v) of each sample; the lower, the likelier."""
        flat = x.flatten(1)
        return -flat @ self.visible.bias - F.softplus(self.hidden(flat)).sum(1)

    def reconstruction_error(self, x: Tensor, y: Tensor) -> Tensor:
        return (self(x) - x).square().flatten(1).mean(1)  # type: ignore[no-any-return]

    def criteria(self) -> list[Criterion]:
        return [Criterion("contrastive divergence", list(self.parameters()), lambda x, y: self.divergence(x))]

    def divergence(self, x: Tensor) -> Tensor:
        """Has the gradient of CD-k; its value is the squared error of a reconstruction."""
        data = x.flatten(1)
        with torch.no_grad():
            reconstructed = self.down(drawn(self.up(data)))
            negative, steps = (reconstructed, self.k - 1) if self.start == "data" else (torch.rand_like(data), self.k)
            for _ in range(steps):
                negative = self.gibbs_step(negative)
        difference = (self.free_energy(data) - self.free_energy(negative)).mean()
        return (difference - difference.detach()) + F.mse_loss(reconstructed, data)

    @torch.no_grad()
    def generate(self, count: int, generator: torch.Generator | None = None, *, steps: int | None = None) -> Tensor:
        """New samples: the visible probabilities at the end of Gibbs chains that begin with noise.

        `steps` None: as many as in training, or 1,000 where training begins with data.
        """
        visible = torch.rand(count, self.visible.bias.numel(), generator=generator).to(self.visible.bias)
        for _ in range(self.sampling_steps if steps is None else steps):
            visible = self.gibbs_step(visible, generator)
        return visible.view(count, *self.shape)

    @property
    def sampling_steps(self) -> int:
        return self.k if self.start == "noise" else SAMPLING_STEPS

    def learned(self, x: Tensor, y: Tensor) -> Sequence[Panel]:
        """Filters, samples, and the free energy of test samples and of noise."""
        noise = torch.rand_like(x).flatten(1).argsort(1)
        energies = {
            "test samples": self.free_energy(x),
            "the same, pixels shuffled": self.free_energy(x.flatten(1).gather(1, noise)),
        }
        panels: list[Panel] = [
            Curves("Free energy: low where a sample is likely", shares(energies), "free energy", "%")
        ]
        if len(self.shape) != 3:
            return panels
        return [
            filter_grid(self, self.shape),
            ImageGrid(
                f"New samples: noise after {self.sampling_steps:,} Gibbs steps",
                image_rows(self.generate(ROWS * COLUMNS)),
            ),
            *panels,
        ]


def drawn(probabilities: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Units that are on with these probabilities; off where a diverged network has none."""
    p = probabilities
    return torch.rand(p.shape, generator=generator, dtype=p.dtype, device=p.device).lt(p).to(p.dtype)


def filter_grid(machine: BoltzmannMachine, shape: tuple[int, ...]) -> ImageGrid:
    """The largest weights of hidden units, as images."""
    weight = machine.hidden.weight
    strongest = weight.norm(dim=1).argsort(descending=True)[: ROWS * COLUMNS]
    filters = weight[strongest].view(-1, *shape)
    filters = filters / filters.abs().flatten(1).amax(1).view(-1, 1, 1, 1) / 2 + 0.5
    return ImageGrid("Weights of hidden units: bright pixels turn them on, dark ones off", image_rows(filters))


def image_rows(images: Tensor) -> Tensor:
    """As a grid has them, without an unfinished row."""
    columns = min(COLUMNS, len(images))
    return images[: len(images) // columns * columns].unflatten(0, (-1, columns))  # type: ignore[no-any-return]


def shares(values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """How the values of each name are distributed: percentages in equal intervals."""
    every = torch.cat(list(values.values()))
    low, high = float(every.min()), float(every.max())
    places = torch.linspace(low, high, 2 * INTERVALS + 1)[1::2]
    counted = {name: torch.histc(found.float().cpu(), INTERVALS, low, high) for name, found in values.items()}
    return {name: torch.stack([places, 100 * counts / counts.sum()], dim=1) for name, counts in counted.items()}
