"""Divides linear layers by feature with torch.distributed.tensor (Shoeybi et al. 2019, Megatron-LM).

Two linear layers with only element-wise ones between them are a pair: in each process the first computes a share of the
features, the second the share of its sums that belongs to them, and one all-reduce follows. The features of any other
linear layer are gathered after it. What is not divided is computed by every process alike.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.distributed.tensor.parallel.style import ParallelStyle

from paceline.errors import NetworkError

ELEMENT_WISE = (
    nn.ReLU, nn.LeakyReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Sigmoid, nn.Tanh, nn.Softplus, nn.Hardtanh, nn.ReLU6,
    nn.Hardswish, nn.Mish, nn.SELU, nn.CELU, nn.Identity, nn.Dropout,
)  # fmt: skip


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


def divide_by_feature(name: str, network: nn.Module, mesh: DeviceMesh) -> list[str]:
    """Divides the linear layers of `network` in place, and returns their names."""
    parts = mesh.size()
    plan: dict[str, ParallelStyle] = {}
    for first, between, second in _pairs(network):
        one, other = network.get_submodule(first), network.get_submodule(second)
        assert isinstance(one, nn.Linear) and isinstance(other, nn.Linear)
        if first in plan or second in plan or one.out_features % parts or one.out_features != other.in_features:
            continue
        plan |= {first: ColwiseParallel(), second: RowwiseParallel()}
        for path in between:
            layer = network.get_submodule(path)
            if isinstance(layer, nn.Dropout):
                _replace(network, path, ShardedDropout(layer.p, mesh.get_local_rank(), parts))
    for path, layer in network.named_modules():
        if type(layer) is nn.Linear and path not in plan and layer.out_features % parts == 0:
            plan[path] = ColwiseParallel(output_layouts=Replicate())
    if not plan:
        raise NetworkError(f"{name} has no linear layer whose features can be divided by `tensor={parts}`")
    parallelize_module(network, mesh, plan)
    return list(plan)


def _pairs(network: nn.Module) -> Iterator[tuple[str, list[str], str]]:
    """Linear layers of which the second gets what the first computes: in a sequence, or as a module says itself."""
    for path, module in network.named_modules():
        prefix = f"{path}." if path else ""
        if type(module) is nn.Sequential:
            yield from _pairs_in_order([(f"{prefix}{name}", layer) for name, layer in module.named_children()])
        for first, *between, second in getattr(module, "linear_pairs", ()):
            yield f"{prefix}{first}", [f"{prefix}{name}" for name in between], f"{prefix}{second}"


def _pairs_in_order(layers: list[tuple[str, nn.Module]]) -> Iterator[tuple[str, list[str], str]]:
    first: str | None = None
    between: list[str] = []
    for path, layer in layers:
        if type(layer) is nn.Linear:
            if first is not None:
                yield first, between, path
                first, between = None, []
            else:
                first, between = path, []
        elif isinstance(layer, ELEMENT_WISE):
            between.append(path)
        else:
            first, between = None, []


def _replace(network: nn.Module, path: str, layer: nn.Module) -> None:
    parent, _, name = path.rpartition(".")
    setattr(network.get_submodule(parent), name, layer.train(network.training))
