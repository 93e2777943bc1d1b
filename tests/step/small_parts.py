"""Small workloads of the tests' own: a network and data given as objects, assembled without names."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from paceline.data.dataset import Arrays, Dataset
from paceline.step.build import assemble, load_data
from paceline.step.feeder import make_feeder
from paceline.step.order import Order
from paceline.step.phase import Phase, phases_of
from paceline.step.placement import dtype_of
from paceline.step.randomness import default_generator
from paceline.step.step import Parts
from paceline.workload import Workload, resolve

CPU = torch.device("cpu")


def rows(count: int = 40, width: int = 6, classes: int = 3, seed: int = 0) -> Dataset:
    """Random rows with random labels."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, width, generator=generator)
    y = torch.randint(0, classes, (count,), generator=generator)
    return dataset_of(x, y)


def dataset_of(x: Tensor, y: Tensor) -> Dataset:
    labelled = not y.is_floating_point()
    classes = tuple(str(i) for i in range(int(y.max()) + 1)) if labelled else ()
    part = Arrays(x, y)
    return Dataset("own:data", "table", tuple(x.shape[1:]), classes, part, part)


def parts_for(network: nn.Module, dataset: Dataset, made: list[Phase] | None = None, **settings: Any) -> Parts:
    """Parts of a workload with the user's own network, on the CPU."""
    workload = Workload(**{"network": "own:build", "data": "own:data", "batch": 8, "epochs": 2, **settings})
    network.to(dtype_of(workload)).train()
    order = Order(len(dataset.train), workload.batch, workload.seed)
    feeder = make_feeder(dataset, order, CPU, dtype_of(workload), training=True, readers=1)
    found = made if made is not None else phases_of(workload, network)
    return Parts(workload, dataset, network, found, feeder, CPU, default_generator(CPU), random=True)


def built_in(network: str, **settings: Any) -> Parts:
    workload = resolve(network, {"data": "digits:100", "batch": 20, "epochs": 1, **settings})
    return assemble(workload, load_data(workload), CPU)


class PartlyUsed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = nn.Linear(6, 3), nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Any:
        return self.used(x)


class Fails(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        raise AssertionError
