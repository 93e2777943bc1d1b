"""Traces the operations of a network's forward and backward pass without running them.

The network is built on the meta device and run on fake tensors, which have a shape but no data. A dispatch mode records
every operation with the layer it belongs to, so VGG-16 at batch 256 is traced in a fraction of a second on a laptop.
Only a network that needs values while it is built gets real memory.
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

from paceline.cost.operation import Operation, classify_op
from paceline.measurement.mark_log import OUTSIDE, RECOMPUTE
from paceline.measurement.module_marks import LEAF, in_backward, rows_of, sequence_number
from paceline.step.phase import Batch


@dataclass(frozen=True)
class Row:
    """A layer of the traced network."""

    kind: str
    parameters: int
    """Trained parameters; a tied one counts for the first layer that has it."""
    calls: int
    backward_nodes: int


@dataclass(frozen=True)
class NetworkShape:
    """The operations, layers and memory of one gradient of a network on one batch."""

    operations: tuple[Operation, ...]
    rows: dict[str, Row]
    parameter_tensors: int
    parameter_bytes: int
    activation_bytes: int
    """Saved by the forward pass for the backward pass."""
    unknown: tuple[str, ...]
    """Operations of no known family, by PyTorch's names."""

    @property
    def flops(self) -> float:
        return sum(operation.flops for operation in self.operations)


class _OpRecorder(TorchDispatchMode):
    """Records every dispatched operation with its layer."""

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
    def recording(self) -> Iterator[None]:
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
                    self.made_by.setdefault(number, row)  # nodes made by nested calls keep their row

        return leave

    def __torch_dispatch__(
        self, function: Any, types: Sequence[type], arguments: tuple[Any, ...] = (), keywords: Any = None
    ) -> Any:
        output = function(*arguments, **(keywords or {}))
        name = function.__name__.partition(".")[0]
        direction = "backward" if in_backward() else "forward"
        row = self.open[-1][0] if self.open else OUTSIDE
        if direction == "backward" and self.open:  # activation checkpointing recomputes part of the forward pass
            row = f"{row} {RECOMPUTE}"
        elif (node := torch._C._current_autograd_node()) is not None:
            row = self._owner_of(node)
            self.nodes.setdefault(row, set()).add(id(node))
        found = classify_op(name, arguments, output)
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
        """Dropout draws a mask, scales and applies it; on a GPU that is one operation, so it is counted as one."""
        if name in ("bernoulli_", "bernoulli"):
            self._random_elements, self._after_random = sizes[0], 2
            return False
        part = self._after_random > 0 and name in ("div_", "mul", "mul_") and sizes == (self._random_elements,)
        self._after_random = self._after_random - 1 if part else 0
        return part


def trace_network(
    build: Callable[[], nn.Module],
    batch: Callable[[], Batch],
    run: Callable[[nn.Module, Batch], tuple[Tensor, Sequence[Tensor]]],
) -> NetworkShape:
    """`build` returns the network, `batch` its input, `run` the loss and the parameters to differentiate."""
    try:
        with torch.device("meta"):
            network = build()
        return _read(network, batch, run)
    except (DataDependentOutputException, DynamicOutputShapeException):
        raise
    except (
        RuntimeError,
        NotImplementedError,
    ):  # it needs values while it is built, or keeps tensors outside its parameters and buffers
        return _read(build(), batch, run)


def _read(
    network: nn.Module,
    batch: Callable[[], Batch],
    run: Callable[[nn.Module, Batch], tuple[Tensor, Sequence[Tensor]]],
) -> NetworkShape:
    kept, mode = _SavedTensors(), FakeTensorMode(allow_non_fake_inputs=True)
    network = _without_memory(network, mode).train()
    with mode, _quiet("torch._subclasses.fake_tensor"):
        watch, samples = _OpRecorder(network), batch()
        with watch.recording(), torch.enable_grad():
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
    """Silences a logger that prints the traceback of exceptions that are also raised."""
    logger = logging.getLogger(name)
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


def _without_memory(network: nn.Module, mode: FakeTensorMode) -> nn.Module:
    """The network on fake tensors; a network with values may be in use elsewhere, so it is copied."""
    if not any(tensor.is_meta for tensor in (*network.parameters(), *network.buffers())):
        with FakeCopyMode(mode):
            return copy.deepcopy(network)
    names: dict[int, list[str]] = {}
    for name, parameter in network.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    with mode:
        network.to_empty(device="cpu")
    for first, *others in names.values():  # restores tied parameters
        for other in others:
            place, _, own = other.rpartition(".")
            setattr(network.get_submodule(place), own, network.get_parameter(first))
    return network


class _SavedTensors:
    """Counts the memory of tensors saved for the backward pass."""

    def __init__(self) -> None:
        self._storages: dict[int, int] = {}
        self._alive: list[Any] = []

    def keep(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        self._storages[storage._cdata] = storage.nbytes()
        self._alive.append(storage)  # keeps the storage alive so that its address is not reused
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


def _rows(watch: _OpRecorder, parameters: Sequence[Tensor]) -> dict[str, Row]:
    trained = {id(p) for p in parameters}
    rows = {}
    for row, module in watch.rows.items():
        own = [p for p in module.parameters(recurse=False) if id(p) in trained]
        trained -= {id(p) for p in own}
        nodes = len(watch.nodes.get(row, ()))
        rows[row] = Row(type(module).__name__, sum(p.numel() for p in own), watch.calls.get(row, 0), nodes)
    return rows
