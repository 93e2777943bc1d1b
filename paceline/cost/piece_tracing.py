"""The pieces of a network that can be cut, and their memory, found without running or allocating it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from paceline.cost.op_tracing import without_values
from paceline.cost.workload_tracing import DataShape, build_traced, traced_batch
from paceline.errors import NetworkError, PacelineError, reason
from paceline.step.pieces import Piece, one_piece, pieces_of
from paceline.unallocated import build_unallocated
from paceline.workload import Workload


@dataclass(frozen=True)
class PieceShape:
    names: tuple[str, ...]
    """Its layers."""
    parameter_bytes: int
    activation_bytes: int
    """Saved by its forward pass for the backward pass, of one batch."""
    output_bytes: int
    """What the next piece gets, of one batch."""


def trace_pieces(workload: Workload, shape: DataShape, *, cut: bool = True) -> tuple[PieceShape, ...]:
    """Those of one batch of the workload; `NetworkError` says why a network cannot be cut. `cut=False`: a network that
    cannot be cut is one piece."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    made = build_unallocated(lambda: build_traced(workload, shape), workload.network, mode)
    network = without_values(made, mode, torch.contiguous_format).train()
    try:
        with mode:
            value = traced_batch(workload, shape)[0]
            if not isinstance(value, Tensor):
                raise NetworkError(f"{workload.network} takes several inputs, and cannot be a pipeline")
            found, saved = [], _Saved(network)
            for piece in _pieces(workload.network, network, value, cut):
                with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(saved.keep, lambda tensor: tensor):
                    value = piece(value)
                if not isinstance(value, Tensor):
                    raise NetworkError(f"{piece.name} does not return one tensor, and cannot be part of a pipeline")
                parameters = sum(p.numel() * p.element_size() for p in piece.parameters())
                output_bytes = value.numel() * value.element_size()
                found.append(PieceShape(tuple(piece.names), parameters, saved.take(), output_bytes))
            return tuple(found)
    except PacelineError:
        raise
    except Exception as error:
        raise NetworkError(f"{workload.network} cannot be traced piece by piece: {reason(error)}") from error


def _pieces(name: str, network: nn.Module, example: Tensor, cut: bool) -> list[Piece]:
    try:
        return pieces_of(name, network, example, random=False)
    except NetworkError:
        if cut:
            raise
        return one_piece(network, random=False)


class _Saved:
    """Counts the memory that is saved for the backward pass, without parameters; each tensor for the first piece that
    saves it."""

    def __init__(self, network: nn.Module) -> None:
        self._seen = {p.untyped_storage()._cdata for p in network.parameters()}
        self._kept: list[Tensor] = []
        self._bytes = 0

    def keep(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in self._seen:
            self._seen.add(storage._cdata)
            self._kept.append(tensor)  # so that no other storage has its address
            self._bytes += storage.nbytes()
        return tensor

    def take(self) -> int:
        """Bytes since the last call."""
        taken, self._bytes = self._bytes, 0
        return taken
