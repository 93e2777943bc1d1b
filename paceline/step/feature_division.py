"""Which linear layers are divided among processes by feature, and how (Shoeybi et al. 2019, Megatron-LM).

Two linear layers with only element-wise ones between them are a pair: in each process the first computes a share of the
features, the second the share of its sums that belongs to them. The features of any other linear layer are gathered
after it. Layers whose features cannot be divided by the number of processes stay whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import nn

from paceline.errors import NetworkError

ELEMENT_WISE = (
    nn.ReLU, nn.LeakyReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Sigmoid, nn.Tanh, nn.Softplus, nn.Hardtanh, nn.ReLU6,
    nn.Hardswish, nn.Mish, nn.SELU, nn.CELU, nn.Identity, nn.Dropout,
)  # fmt: skip
FIRST, SECOND, GATHERED = "first of a pair", "second of a pair", "gathered"


@dataclass(frozen=True)
class FeatureDivision:
    layers: dict[str, str]
    """How each linear layer is divided, by name: `FIRST`, `SECOND` or `GATHERED`."""
    dropouts: tuple[str, ...]
    """Dropout layers inside pairs, which get a share of the features."""


def divide_features(name: str, network: nn.Module, parts: int) -> FeatureDivision:
    """`NetworkError` if no layer of the network can be divided."""
    found: dict[str, str] = {}
    dropouts: list[str] = []
    for first, between, second in _pairs(network):
        one, other = network.get_submodule(first), network.get_submodule(second)
        assert isinstance(one, nn.Linear) and isinstance(other, nn.Linear)
        if first in found or second in found or one.out_features % parts or one.out_features != other.in_features:
            continue
        found |= {first: FIRST, second: SECOND}
        dropouts += (path for path in between if isinstance(network.get_submodule(path), nn.Dropout))
    for path, layer in network.named_modules():
        if type(layer) is nn.Linear and path not in found and layer.out_features % parts == 0:
            found[path] = GATHERED
    if not found:
        raise NetworkError(f"{name} has no linear layer whose features can be divided by `tensor={parts}`")
    return FeatureDivision(found, tuple(dropouts))


def replace_layer(network: nn.Module, path: str, layer: nn.Module) -> None:
    parent, _, name = path.rpartition(".")
    setattr(network.get_submodule(parent), name, layer.train(network.training))


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
