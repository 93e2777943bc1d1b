"""Activations by name, as modules so that a layer clock sees them."""

from __future__ import annotations

from torch import nn


def activation_layer(name: str, *, inplace: bool = False) -> nn.Module:
    """`inplace` holds for ReLU alone, whose derivative its output tells: the input need not be kept."""
    if name == "relu":
        return nn.ReLU(inplace=inplace)
    return {"sigmoid": nn.Sigmoid, "tanh": nn.Tanh, "gelu": nn.GELU}[name]()
