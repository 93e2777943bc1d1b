"""Describes a network without allocating its memory: its layers and their parameters."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from paceline.networks.building import build
from paceline.networks.known import KNOWN

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Layer:
    name: str
    kind: str
    parameters: int


@dataclass(frozen=True)
class Description:
    name: str
    description: str
    kinds: tuple[str, ...]
    shape: tuple[int, ...]
    classes: int
    parameters: int
    layers: tuple[Layer, ...]


def layers(module: nn.Module) -> tuple[Layer, ...]:
    """The layers with parameters, in the module's order; a shared parameter counts for the first one."""
    found: list[Layer] = []
    counted: set[int] = set()
    for name, layer in module.named_modules():
        own = list(layer.parameters(recurse=False))
        if own:
            fresh = {id(parameter): parameter.numel() for parameter in own if id(parameter) not in counted}
            counted.update(fresh)
            found.append(Layer(name, type(layer).__name__, sum(fresh.values())))
    return tuple(found)


@functools.cache
def built_in_networks() -> tuple[Description, ...]:
    """Every built-in network, with the input shape and number of classes of its publication."""
    import torch
    from torch.overrides import TorchFunctionMode

    class WithoutInitialValues(TorchFunctionMode):
        """Skips random initialisation: it has no effect without memory, and would load PyTorch's compiler."""

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            if func.__name__ in ("normal_", "uniform_", "kaiming_uniform_"):
                return args[0] if args else kwargs["tensor"]
            return func(*args, **kwargs)

    descriptions = []
    for name, entry in KNOWN.items():
        with torch.device("meta"), WithoutInitialValues():
            network = build(name, shape=entry.shape, classes=entry.classes, kind=entry.kinds[0])
        parts = layers(network)
        descriptions.append(
            Description(
                name=name,
                description=entry.description,
                kinds=entry.kinds,
                shape=entry.shape,
                classes=entry.classes,
                parameters=sum(part.parameters for part in parts),
                layers=parts,
            )
        )
    return tuple(descriptions)
