"""Activations by name, as modules so that a layer clock sees them."""

from __future__ import annotations

from torch import nn


def activation_layer(name: str, *, inplace: bool = False) -> nn.Module:
    """`inplace` applies to ReLU only, whose derivative follows from its output, so the input need not be saved."""
    if name == "relu":
        return nn.ReLU(inplace=inplace)
    return {"sigmoid": nn.Sigmoid, "tanh": nn.Tanh, "gelu": nn.GELU}[name]()
