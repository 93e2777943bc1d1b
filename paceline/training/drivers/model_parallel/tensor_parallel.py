"""Divides linear layers by feature with torch.distributed.tensor.

After the second layer of a pair one all-reduce adds the sums of all processes up. What is not divided is computed by
every process alike.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.distributed.tensor.parallel.style import ParallelStyle

from paceline.step.feature_division import FIRST, SECOND, divide_features, replace_layer


class ShardedDropout(nn.Dropout):
    """Dropout on a share of the features: it draws the numbers of all features, as one process would."""

    def __init__(self, p: float, part: int, parts: int) -> None:
        super().__init__(p)
        self.part, self.parts = part, parts

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or not self.p:
            return x
        whole = torch.empty((*x.shape[:-1], x.shape[-1] * self.parts), dtype=x.dtype, device=x.device)
        mask = whole.bernoulli_(1 - self.p).div_(1 - self.p)
        return x * mask.chunk(self.parts, dim=-1)[self.part]


def divide_by_feature(name: str, network: nn.Module, mesh: DeviceMesh) -> None:
    """Divides the linear layers of `network` in place."""
    found = divide_features(name, network, mesh.size())
    for path in found.dropouts:
        layer = network.get_submodule(path)
        assert isinstance(layer, nn.Dropout)
        replace_layer(network, path, ShardedDropout(layer.p, mesh.get_local_rank(), mesh.size()))
    parallelize_module(network, mesh, {path: _style(how) for path, how in found.layers.items()})


def _style(how: str) -> ParallelStyle:
    if how == SECOND:
        return RowwiseParallel()
    return ColwiseParallel() if how == FIRST else ColwiseParallel(output_layouts=Replicate())
