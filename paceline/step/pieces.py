"""A network as a chain of pieces, each of which gets only what the one before it returned: a pipeline is cut there.

The random numbers of a piece are a function of (seed, worker, epoch, step, micro-batch, piece), so that they do not
depend on where a network is cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from paceline.errors import NetworkError
from paceline.step.randomness import draws_random_numbers, mix


class Piece(nn.Module):
    """One layer, with the in-place activations that follow it: what they overwrite must not come from elsewhere."""

    def __init__(self, name: str, layer: nn.Module, *, random: bool) -> None:
        """`random`: it may draw random numbers, whatever its layers are."""
        super().__init__()
        self.name, self.random = name, random or draws_random_numbers(layer)
        self.names, self.layers = [name], nn.ModuleList([layer])

    def append(self, name: str, layer: nn.Module) -> None:
        self.names.append(name)
        self.layers.append(layer)

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return x


class Segment(nn.Module):
    """Consecutive pieces of a network, from number `first`; `begin` starts a step, every call is a micro-batch."""

    def __init__(self, pieces: Sequence[Piece], first: int, generator: torch.Generator) -> None:
        super().__init__()
        self.pieces, self.first, self.generator = nn.ModuleList(pieces), first, generator
        self.seed, self.microbatch = 0, 0

    def begin(self, seed: int, microbatch: int = 0) -> None:
        self.seed, self.microbatch = seed, microbatch

    def forward(self, x: Any) -> Any:
        for number, piece in enumerate(self.pieces, start=self.first):
            if piece.random:
                self.generator.manual_seed(mix(self.seed, self.microbatch, number))
            x = piece(x)
        self.microbatch += 1
        return x


def one_piece(network: nn.Module, *, random: bool) -> list[Piece]:
    """A network that is not cut."""
    return [Piece("", network, random=random)]


def pieces_of(name: str, network: nn.Module, example: Tensor, *, random: bool) -> list[Piece]:
    """The pieces of a network that is a chain of layers; of any other, an error says why it is none.

    `example` is a batch to try it with. `random`: all its layers may draw random numbers.
    """
    pieces: list[Piece] = []
    for path, layer in _chain(network, _top_level(name, network, example)):
        if pieces and getattr(layer, "inplace", False):
            pieces[-1].append(path, layer)
        else:
            pieces.append(Piece(path, layer, random=random))
    owner: dict[int, str] = {}
    for piece in pieces:
        for parameter in piece.parameters():
            if owner.setdefault(id(parameter), piece.name) != piece.name:
                raise NetworkError(
                    f"{name} cannot be a pipeline: {owner[id(parameter)]} and {piece.name} share a parameter"
                )
    return pieces


def _chain(network: nn.Module, names: Sequence[str]) -> list[tuple[str, nn.Module]]:
    """The layers of these children, with those of sequences inside them one by one."""
    found: list[tuple[str, nn.Module]] = []
    for name in names:
        child = network.get_submodule(name)
        if type(child) is nn.Sequential and len(child):
            inner = [each for each, _ in child.named_children()]
            found += [(f"{name}.{path}", layer) for path, layer in _chain(child, inner)]
        else:
            found.append((name, child))
    return found


def _top_level(name: str, network: nn.Module, example: Tensor) -> list[str]:
    """The children in the order in which they run."""
    if type(network) is nn.Sequential:
        return [child for child, layer in network._modules.items() if layer is not None]
    if any(True for _ in network.parameters(recurse=False)) or any(True for _ in network.buffers(recurse=False)):
        raise NetworkError(f"{name} cannot be a pipeline: it has parameters or buffers outside its layers")
    calls: list[tuple[str, Any, Any]] = []
    hooks = [
        child.register_forward_hook(lambda _, inputs, output, path=path: calls.append((path, inputs, output)))
        for path, child in network.named_children()
    ]
    was_training = network.training
    network.eval()
    try:
        with torch.no_grad():
            result = network(example)
    finally:
        network.train(was_training)
        for hook in hooks:
            hook.remove()
    before, value = "its input", example
    for path, inputs, output in calls:
        if len(inputs) != 1 or inputs[0] is not value:
            raise NetworkError(
                f"{name} cannot be a pipeline: {path} is not called with just the result of {before}; "
                "write it as a sequence of modules"
            )
        before, value = path, output
    if result is not value or not calls:
        raise NetworkError(
            f"{name} cannot be a pipeline: it does not return the result of its last module, {before}, as it is"
        )
    names = [path for path, _, _ in calls]
    if len(set(names)) < len(names):
        raise NetworkError(f"{name} cannot be a pipeline: a module is called twice")
    missing = [path for path, child in network.named_children() if path not in names and [*child.parameters()]]
    if missing:
        raise NetworkError(f"{name} cannot be a pipeline: {missing[0]} is not used")
    return names


def piece_outputs(pieces: Sequence[Piece], example: Tensor) -> list[Tensor]:
    """What each piece returns for an example, without its values; its first dimension is that of the samples."""
    outputs, value = [], example
    modes = [piece.training for piece in pieces]
    try:
        with torch.no_grad():
            for piece in pieces:
                value = piece.eval()(value)
                if not isinstance(value, Tensor) or value.dim() < 1 or value.shape[0] % len(example):
                    raise NetworkError(
                        f"{piece.name} cannot be part of a pipeline: it should return one tensor whose first "
                        "dimension is that of the samples"
                    )
                outputs.append(torch.empty_like(value, device="meta"))
    finally:
        for piece, mode in zip(pieces, modes, strict=True):
            piece.train(mode)
    return outputs
