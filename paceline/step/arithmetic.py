"""How much arithmetic a network does: multiplications and additions, counted from shapes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from paceline.data.fields import Inputs
from paceline.step.calling import call_network


def flops_of_call(module: nn.Module, read: list[Tensor], written: list[Tensor]) -> float:
    """Those of one layer's forward call, by the tensors it read and wrote."""
    if not written:
        return 0.0
    if isinstance(module, nn.Linear):
        return 2.0 * module.in_features * written[0].numel()
    if isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d):
        return 2.0 * module.weight[0].numel() * written[0].numel()
    if isinstance(module, nn.RNNBase) and read:
        steps = read[0].numel() // module.input_size
        return 2.0 * steps * sum(p.numel() for p in module.parameters() if p.dim() > 1)
    return float(written[0].numel())


@dataclass(frozen=True)
class Work:
    """Of a forward pass."""

    flops: float
    written: float
    """Numbers that its layers write."""


def flops_of(network: nn.Module, sample: Inputs) -> float:
    """Those of a whole forward pass on `sample`; infinite when the network does not take it."""
    return work_of(network, sample).flops


def work_of(network: nn.Module, sample: Inputs) -> Work:
    """That of a whole forward pass on `sample`; infinite when the network does not take it."""
    flops = numbers = 0.0

    def count(layer: nn.Module, inputs: Any, output: Any) -> None:
        nonlocal flops, numbers
        read, written = ([t for t in tree_leaves(x) if isinstance(t, Tensor)] for x in (inputs, output))
        flops += flops_of_call(layer, read, written)
        numbers += sum(tensor.numel() for tensor in written)

    hooks = [layer.register_forward_hook(count) for layer in network.modules() if not list(layer.children())]
    mode = network.training
    network.eval()
    try:
        with torch.no_grad():
            call_network(network, sample)
    except Exception:
        return Work(math.inf, math.inf)  # whoever trains it will say why
    finally:
        network.train(mode)
        for hook in hooks:
            hook.remove()
    return Work(flops, numbers)
