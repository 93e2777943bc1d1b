"""Initial weights other than a network's own: small normal ones, Glorot & Bengio 2010, He et al. 2015, or a run's.

Only the layers that multiply (linear, convolution, recurrent) change; norms and embeddings keep what they have.
"""

from __future__ import annotations

import functools
import math
import pickle
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from paceline.errors import NetworkError

SMALL_STD = 0.1
CHECKPOINT = "checkpoint.pt"
"""In the directory of a run."""
_MULTIPLYING = (nn.Linear, nn.Conv2d, nn.RNNBase)
_GATES = {"LSTM": 4, "GRU": 3}
"""Matrices that PyTorch stacks in one, by the kind of layer; each has its own number of outputs."""


def initialiser(init: str) -> Callable[[nn.Module], None] | None:
    """The function that initialises a network; None keeps its default weights."""
    kind, colon, std = init.partition(":")
    if init == "default":
        return None
    if (path := _saved(init)) is not None:
        return functools.partial(_load, path=path)
    if kind == "small":
        fill = functools.partial(nn.init.normal_, std=_std(init, std) if colon else SMALL_STD)
    elif init == "xavier":
        fill = functools.partial(nn.init.xavier_uniform_)
    elif init == "kaiming":
        fill = functools.partial(nn.init.kaiming_normal_, nonlinearity="relu")
    elif init == "zeros":
        raise NetworkError("init 'zeros' would keep all units of a layer equal: use small:0.001")
    else:
        raise NetworkError(
            f"init {init!r} is unknown: use default, small, small:STD, xavier or kaiming, or a run's directory"
        )
    return functools.partial(_initialise, fill=fill)


def _saved(init: str) -> Path | None:
    """The checkpoint of a run, named by its directory or as a file."""
    path = Path(init).expanduser()
    path = path / CHECKPOINT if path.is_dir() else path
    return path if path.suffix == ".pt" and path.is_file() else None


def _load(network: nn.Module, path: Path) -> None:
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
        network.load_state_dict(content.get("parameters", content))
    except (OSError, RuntimeError, ValueError, AttributeError, TypeError, pickle.UnpicklingError) as error:
        first = next((line.strip() for line in reversed(str(error).splitlines()) if line.strip()), "")
        raise NetworkError(f"init {str(path)!r} does not hold parameters of this network: {first:.150}") from error


def _std(init: str, text: str) -> float:
    try:
        std = float(text)
    except ValueError:
        std = math.nan
    if not 0 < std < math.inf:
        raise NetworkError(f"init {init!r} must end in a positive number, as in small:0.05")
    return std


def _initialise(network: nn.Module, fill: Callable[[torch.Tensor], torch.Tensor]) -> None:
    for layer in network.modules():
        if not isinstance(layer, _MULTIPLYING):
            continue
        for name, parameter in layer.named_parameters(recurse=False):
            if name.startswith("bias"):
                nn.init.zeros_(parameter)
                continue
            for matrix in parameter.detach().chunk(_GATES.get(getattr(layer, "mode", ""), 1)):
                fill(matrix)
