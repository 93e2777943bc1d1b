"""Builds a network from its name and the shape of the data, with an error if they do not fit."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, cast

from paceline.errors import NetworkError, nearest
from paceline.networks.known import KINDS, KNOWN, fitting, needs_labels

if TYPE_CHECKING:
    from torch import nn

ACTIVATIONS = ("sigmoid", "tanh", "relu", "gelu")


def build(
    name: str,
    *,
    shape: Sequence[int],
    classes: int,
    kind: str = "image",
    dropout: float | None = None,
    activation: str | None = None,
    init: str = "default",
    **options: object,
) -> nn.Module:
    """A network for samples of `shape` (without the batch) and `classes` outputs (for text, the vocabulary).

    `dropout` and `activation` left at None are the network's own. `options` belong to one network,
    such as `hidden` of mlp or `auxiliary` of googlenet.
    """
    _check_name_and_kind(name, kind)
    _check_numbers(shape, classes if classes or needs_labels(name) else 1, dropout)
    if activation is not None and activation not in ACTIVATIONS:
        raise NetworkError(f"activation {activation!r} is unknown: use one of {', '.join(ACTIVATIONS)}")
    check_options(name, options)

    # Imported late, so that a misspelled name does not wait for PyTorch.
    from paceline.networks.initial import initialiser

    initialise = initialiser(init)
    network = _function(name)(tuple(shape), classes, dropout=dropout, activation=activation, **options)
    if initialise is not None:
        initialise(network)
    return network


def _function(name: str) -> Callable[..., nn.Module]:
    family = importlib.import_module(f"paceline.networks.{KNOWN[name].family}")
    return cast("Callable[..., nn.Module]", getattr(family, name))


def _check_name_and_kind(name: str, kind: str) -> None:
    if name not in KNOWN:
        raise NetworkError(f"network {name!r} is unknown: {nearest(name, KNOWN)}")
    if kind not in KINDS:
        raise NetworkError(f"kind {kind!r} is unknown: {nearest(kind, KINDS)}")
    kinds = KNOWN[name].kinds
    if kind not in kinds:
        raise NetworkError(
            f"network {name!r} takes {' or '.join(kinds)} data, not {kind}: for {kind} use {fitting(kind)}"
        )


def _check_numbers(shape: Sequence[int], classes: int, dropout: float | None) -> None:
    if not shape or any(not isinstance(size, int) or size < 1 for size in shape):
        raise NetworkError(f"shape {tuple(shape)} must hold positive whole numbers, one sample's sizes")
    if isinstance(classes, bool) or not isinstance(classes, int) or classes < 1:
        raise NetworkError(f"classes {classes!r} must be a whole number of at least 1")
    if dropout is not None and not 0 <= dropout < 1:
        raise NetworkError(f"dropout {dropout!r} must be at least 0 and below 1")


def check_options(name: str, options: Iterable[str]) -> None:
    """Refuses an option that a built-in network does not have."""
    known = set(inspect.signature(_function(name)).parameters) - {"shape", "classes", "dropout", "activation"}
    for option in options:
        if option not in known:
            advice = nearest(option, known) if known else "it has none, leave it out"
            raise NetworkError(f"option {option!r} is unknown to network {name!r}: {advice}")
