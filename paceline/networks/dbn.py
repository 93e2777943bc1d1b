"""The deep belief network (Hinton, Osindero & Teh 2006): Boltzmann machines, one on the hidden units of the other.

Each is trained by contrastive divergence, without labels, while those below it stay as they are. Then the whole is a
feed-forward classifier that starts from their weights, and is trained by back-propagation at a lowered rate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from paceline.errors import NetworkError
from paceline.networks.checks import no_activation, positive, positives
from paceline.networks.criterion import Criterion
from paceline.networks.learned import Curves, Panel
from paceline.networks.rbm import BoltzmannMachine, filter_grid


def dbn(
    shape: tuple[int, ...],
    classes: int,
    *,
    dropout: float | None = None,
    activation: str | None = None,
    hidden: int | Sequence[int] = (256, 256),
    pretrain: int = 3,
    rate: float = 0.5,
    k: int = 1,
) -> DeepBeliefNetwork:
    """`pretrain` are the epochs of each machine, before fine-tuning; `rate` multiplies the learning rate of that."""
    no_activation("dbn", activation)
    if isinstance(pretrain, bool) or not isinstance(pretrain, int) or pretrain < 0:
        raise NetworkError(f"option pretrain = {pretrain!r} must be a whole number of at least 0")
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate < math.inf:
        raise NetworkError(f"option rate = {rate!r} must be a number above 0")
    units = (math.prod(shape), *positives("hidden", hidden))
    machines = [BoltzmannMachine((before,), after, positive("k", k), "data") for before, after in pairwise(units)]
    return DeepBeliefNetwork(shape, machines, classes, pretrain, rate, dropout or 0.0)


class DeepBeliefNetwork(nn.Module):
    def __init__(
        self,
        shape: tuple[int, ...],
        machines: Sequence[BoltzmannMachine],
        classes: int,
        pretrain: int,
        rate: float,
        dropout: float,
    ) -> None:
        super().__init__()
        self.shape, self.pretrain, self.rate = shape, pretrain, rate
        self.machines = list(machines)
        for number, machine in enumerate(machines, start=1):
            self.add_module(f"rbm{number}", machine)
        self.dropout = nn.Dropout(dropout) if dropout else nn.Identity()
        self.output = nn.Linear(machines[-1].hidden.out_features, classes)

    def check_inputs(self, x: Tensor) -> None:
        self.machines[0].check_inputs(x)

    def forward(self, x: Tensor) -> Tensor:
        return self.output(self.dropout(self.up(x, len(self.machines))))  # type: ignore[no-any-return]

    def up(self, x: Tensor, layers: int) -> Tensor:
        """Probabilities of the hidden units of the first `layers` machines."""
        units = x.flatten(1)
        for machine in self.machines[:layers]:
            units = machine.up(units)
        return units

    def criteria(self) -> list[Criterion]:
        """The machines in turn, then all parameters: biases of visible units, too, which then have no gradient."""
        each = self.pretrain
        stages = [
            Criterion(
                f"rbm{place + 1}",
                list(machine.parameters()),
                self.divergence(place),
                (place * each, (place + 1) * each),
            )
            for place, machine in enumerate(self.machines)
            if each
        ]
        first = each * len(self.machines)
        return [*stages, Criterion("fine-tune", list(self.parameters()), self.classify, (first, None), self.rate)]

    def divergence(self, place: int) -> Callable[[Tensor, Tensor], Tensor]:
        """The loss of one machine, on the hidden units of those below it."""

        def loss(x: Tensor, y: Tensor) -> Tensor:
            with torch.no_grad():
                below = self.up(x, place)
            return self.machines[place].divergence(below)

        return loss

    def classify(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        scores = self(x)
        return F.cross_entropy(scores, y), scores

    def learned(self, x: Tensor, y: Tensor) -> Sequence[Panel]:
        """The weights of the first layer, and how many samples of each class are recognised."""
        answers = self(x).argmax(1)
        found = {int(label): float(answers[y == label].eq(label).float().mean()) for label in y.unique()}
        line = torch.tensor([[label, 100 * share] for label, share in sorted(found.items())])
        panels: list[Panel] = [Curves("Test samples recognised, %", {"by class": line}, "class")]
        return [filter_grid(self.machines[0], self.shape), *panels] if len(self.shape) == 3 else panels
