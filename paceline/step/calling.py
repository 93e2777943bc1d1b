"""Calls a network on a batch's inputs, and reads what networks of other libraries return.

Several inputs are keyword arguments, as `model(**batch)`. Hugging Face's models return an object with `.logits`, and
with `.loss` when they are given labels.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from paceline.data.fields import Fields, Inputs


def call_network(network: nn.Module, x: Inputs, labels: bool = False) -> Any:
    """What the network returns; with `labels` it is given the target too, if it takes one."""
    if not isinstance(x, Fields):
        return network(x)
    if x.form != "dict":
        return network(*x.tensors.values())
    if x.label is None or (labels and _takes(type(network).forward, x.label)):
        return network(**x.tensors)
    return network(**{name: tensor for name, tensor in x.tensors.items() if name != x.label})


@functools.cache
def _takes(forward: Callable[..., Any], name: str) -> bool:
    """Whether `forward` has an argument of that name."""
    parameters = inspect.signature(forward).parameters
    return name in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def model_loss(output: Any) -> Tensor | None:
    """The loss that the network computed itself, if it did."""
    return None if isinstance(output, Tensor | tuple) else _part(output, "loss")


def scores_of(output: Any) -> Any:
    """The tensor to compare with the target, or a tuple that begins with it; anything else as it was returned."""
    if isinstance(output, Tensor) or (isinstance(output, tuple) and not hasattr(output, "logits")):
        return output
    logits = _part(output, "logits")
    return output if logits is None else logits


def _part(output: Any, name: str) -> Tensor | None:
    found = output.get(name) if isinstance(output, Mapping) else getattr(output, name, None)
    return found if isinstance(found, Tensor) else None
