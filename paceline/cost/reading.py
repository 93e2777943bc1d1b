"""Reads what a network will have to do, operation by operation, without doing it.

The network is built without memory and run on tensors that have a shape and nothing else. Every operation that
PyTorch would have run passes by, in its forward and its backward pass, with the layer it belongs to; so VGG-16 at
batch 256 is read in a fraction of a second on a laptop. Only a network that needs values to be built gets memory.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeCopyMode,
    FakeTensorMode,
)
from torch.utils._python_dispatch import TorchDispatchMode

from paceline.cost.operation import Operation, understood
from paceline.measurement.mark_log import OUTSIDE, RECOMPUTE
from paceline.measurement.module_marks import LEAF, in_backward, rows_of, sequence_number


@dataclass(frozen=True)
class Row:
    """A layer: its kind and what it holds."""

    kind: str
    parameters: int
    """Trained ones; a tied one is its first owner's."""
    calls: int
    backward_nodes: int


@dataclass(frozen=True)
class NetworkShape:
    """What one gradient of a network on one batch takes."""

    operations: tuple[Operation, ...]
    rows: dict[str, Row]
    parameter_tensors: int
    parameter_bytes: int
    activation_bytes: int
    """Kept from the forward pass for the backward pass."""
    unknown: tuple[str, ...]
    """Operations of no known family, by PyTorch's names."""

    @property
    def flops(self) -> float:
        return sum(operation.flops for operation in self.operations)


class _Watch(TorchDispatchMode):
    """Notes every operation that passes, with whose it is."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.rows = rows_of(network)
        whole = type(network).__name__
        self.owner_of_parameter = {id(p): name.rpartition(".")[0] or whole for name, p in network.named_parameters()}
        self.open: list[tuple[str, int]] = []
        self.made_by: dict[int, str] = {}
        self.calls: dict[str, int] = {}
        self.nodes: dict[str, set[int]] = {}
        self.operations: list[Operation] = []
        self._random_elements = 0
        self._after_random = 0

    @contextmanager
    def watching(self) -> Iterator[None]:
        with ExitStack() as undo:
            for row, module in self.rows.items():
                undo.callback(module.register_forward_pre_hook(self._enter(row)).remove)
                undo.callback(module.register_forward_hook(self._leave(row), always_call=True).remove)
            undo.enter_context(self)
            yield

    def _enter(self, row: str) -> Callable[..., None]:
        def enter(module: nn.Module, inputs: Any) -> None:
            self.calls[row] = self.calls.get(row, 0) + 1
            self.open.append((row, sequence_number()))

        return enter

    def _leave(self, row: str) -> Callable[..., None]:
        def leave(module: nn.Module, inputs: Any, output: Any) -> None:
            if self.open and self.open[-1][0] == row:
                _, first = self.open.pop()
                for number in range(first, sequence_number()):
                    self.made_by.setdefault(number, row)  # what an inner call made stays its own

        return leave

    def __torch_dispatch__(
        self, function: Any, types: Sequence[type], arguments: tuple[Any, ...] = (), keywords: Any = None
    ) -> Any:
        output = function(*arguments, **(keywords or {}))
        name = function.__name__.partition(".")[0]
        direction = "backward" if in_backward() else "forward"
        row = self.open[-1][0] if self.open else OUTSIDE
        if direction == "backward" and self.open:  # a checkpoint runs a part of the forward pass again
            row = f"{row} {RECOMPUTE}"
        elif (node := torch._C._current_autograd_node()) is not None:
            row = self._owner_of(node)
            self.nodes.setdefault(row, set()).add(id(node))
        found = understood(name, arguments, output)
        if found is not None and not self._is_part_of_dropout(name, found[1]):
            family, sizes, known = found
            self.operations.append(Operation(family, tuple(map(int, sizes)), row, direction, name, known))
        return output

    def _owner_of(self, node: Any) -> str:
        number = node._sequence_nr()
        if number == LEAF and hasattr(node, "variable"):
            return self.owner_of_parameter.get(id(node.variable), OUTSIDE)
        return self.made_by.get(number, OUTSIDE)

    def _is_part_of_dropout(self, name: str, sizes: tuple[int, ...]) -> bool:
        """A mask is drawn, scaled and applied; on a GPU that is one operation, so it is counted as one."""
        if name in ("bernoulli_", "bernoulli"):
            self._random_elements, self._after_random = sizes[0], 2
            return False
        part = self._after_random > 0 and name in ("div_", "mul", "mul_") and sizes == (self._random_elements,)
        self._after_random = self._after_random - 1 if part else 0
        return part


def read_network(
    build: Callable[[], nn.Module],
    batch: Callable[[], tuple[Tensor, Tensor]],
    run: Callable[[nn.Module, tuple[Tensor, Tensor]], tuple[Tensor, Sequence[Tensor]]],
) -> NetworkShape:
    """`build` makes the network, `batch` its input, `run` its loss and what to differentiate it by; none has memory."""
    try:
        with torch.device("meta"):
            network = build()
        return _read(network, batch, run)
    except (DataDependentOutputException, DynamicOutputShapeException):
        raise
    except (RuntimeError, NotImplementedError):  # it wants to see values while it is built, or keeps tensors of its own
        return _read(build(), batch, run)


def _read(
    network: nn.Module,
    batch: Callable[[], tuple[Tensor, Tensor]],
    run: Callable[[nn.Module, tuple[Tensor, Tensor]], tuple[Tensor, Sequence[Tensor]]],
) -> NetworkShape:
    kept, mode = _Kept(), FakeTensorMode(allow_non_fake_inputs=True)
    network = _without_memory(network, mode).train()
    with mode, _quiet("torch._subclasses.fake_tensor"):
        watch, samples = _Watch(network), batch()
        with watch.watching(), torch.enable_grad():
            with torch.autograd.graph.saved_tensors_hooks(kept.keep, kept.give):
                loss, parameters = run(network, samples)
            kept.forget_parameters(parameters)
            torch.autograd.grad(loss, list(parameters), allow_unused=True)
        rows = _rows(watch, parameters)
        sizes = [p.numel() * p.element_size() for p in parameters]
    unknown = sorted({operation.name for operation in watch.operations if not operation.known})
    return NetworkShape(
        tuple(watch.operations), rows, len(sizes), sum(sizes), kept.bytes, tuple(unknown)
    )  # fmt: skip


@contextmanager
def _quiet(name: str) -> Iterator[None]:
    """Without the stack traces that a logger prints of what is raised as well."""
    logger = logging.getLogger(name)
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


def _without_memory(network: nn.Module, mode: FakeTensorMode) -> nn.Module:
    """The network on tensors that are only a shape; one that has values may be in use elsewhere, so it is copied."""
    if not any(tensor.is_meta for tensor in (*network.parameters(), *network.buffers())):
        with FakeCopyMode(mode):
            return copy.deepcopy(network)
    names: dict[int, list[str]] = {}
    for name, parameter in network.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    with mode:
        network.to_empty(device="cpu")
    for first, *others in names.values():  # of a tied parameter that made several
        for other in others:
            place, _, own = other.rpartition(".")
            setattr(network.get_submodule(place), own, network.get_parameter(first))
    return network


class _Kept:
    """Counts the memory that the backward pass will want to see again."""

    def __init__(self) -> None:
        self._storages: dict[int, int] = {}
        self._alive: list[Any] = []

    def keep(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        self._storages[storage._cdata] = storage.nbytes()
        self._alive.append(storage)  # else its number could be given to another
        return tensor

    def give(self, tensor: Tensor) -> Tensor:
        return tensor

    def forget_parameters(self, parameters: Sequence[Tensor]) -> None:
        for parameter in parameters:
            self._storages.pop(parameter.untyped_storage()._cdata, None)
        self._alive.clear()

    @property
    def bytes(self) -> int:
        return sum(self._storages.values())


def _rows(watch: _Watch, parameters: Sequence[Tensor]) -> dict[str, Row]:
    trained = {id(p) for p in parameters}
    rows = {}
    for row, module in watch.rows.items():
        own = [p for p in module.parameters(recurse=False) if id(p) in trained]
        trained -= {id(p) for p in own}
        nodes = len(watch.nodes.get(row, ()))
        rows[row] = Row(type(module).__name__, sum(p.numel() for p in own), watch.calls.get(row, 0), nodes)
    return rows
