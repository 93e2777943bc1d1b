"""Between a flat vector of parameters and a network's state dict, by where the network's tensors lie in memory."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor, nn


def named_parameters(network: nn.Module, flat: Tensor, local: Tensor) -> dict[str, Tensor]:
    """A flat vector as the network's state dict; the network's tensors are views of `local`."""
    named = {name: tensor.detach().clone() for name, tensor in network.state_dict().items()}
    for name, tensor, start in _pieces(network, local):
        named[name] = flat[start : start + tensor.numel()].reshape(tensor.shape).clone()
    return named


def flat_parameters(network: nn.Module, named: dict[str, Tensor], local: Tensor) -> Tensor:
    """The reverse."""
    flat = local.detach().cpu().clone()
    for name, tensor, start in _pieces(network, local):
        flat[start : start + tensor.numel()] = named[name].reshape(-1)
    return flat


def _pieces(network: nn.Module, local: Tensor) -> Iterator[tuple[str, Tensor, int]]:
    first, last = local.data_ptr(), local.data_ptr() + local.numel() * local.element_size()
    for name, tensor in network.state_dict().items():
        if first <= tensor.data_ptr() < last:
            yield name, tensor, (tensor.data_ptr() - first) // local.element_size()
