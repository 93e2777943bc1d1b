"""Two phases that are trained in the same epochs, each against the other's parameters, without random numbers."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from paceline.data.dataset import Dataset
from paceline.networks.criterion import Criterion
from tests.step.small_parts import dataset_of, rows


class Players(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.critic, self.maker = nn.Linear(6, 1), nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.critic(self.maker(x))

    def criteria(self) -> list[Criterion]:
        return [
            Criterion("critic", list(self.critic.parameters()), self.critic_loss),
            Criterion("maker", list(self.maker.parameters()), self.maker_loss),
        ]

    def critic_loss(self, x: Tensor, y: Tensor) -> Tensor:
        return F.softplus(-self.critic(x)).mean() + F.softplus(self.critic(self.maker(x).detach())).mean()

    def maker_loss(self, x: Tensor, y: Tensor) -> Tensor:
        return F.softplus(-self(x)).mean()


def make() -> Players:
    return Players()


def data() -> Dataset:
    x = rows(103).train.x
    return dataset_of(x, x.sum(1, keepdim=True))
