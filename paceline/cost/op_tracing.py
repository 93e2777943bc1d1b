"""Traces the operations of a network's forward and backward pass without running them.

The network is built and run on fake tensors, which have a shape and a type but no data. A dispatch mode records every
operation with the layer it belongs to, and the memory it allocates. VGG-16 at batch 256 is traced in a fraction of a
second on a laptop.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeCopyMode, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from paceline.cost.allocations import WORKSPACE, AllocationLog, Event
from paceline.cost.families import CONVOLUTIONS
from paceline.cost.gpu_dispatch import as_on_gpu
from paceline.cost.op_aliases import VIEWS
from paceline.cost.op_classification import classify_op
from paceline.cost.op_replay import TracedCall, TracedCalls
from paceline.cost.operation import Operation, tensors_in, traffic_of
from paceline.cost.saved_tensors import SavedTensors
from paceline.data.fields import Fields
from paceline.measurement.mark_log import OUTSIDE, RECOMPUTE
from paceline.measurement.module_marks import in_backward, sequence_number
from paceline.measurement.module_rows import rows_of
from paceline.measurement.node_order import LEAF
from paceline.step.layout import images_in
from paceline.step.optimizers import Rule
from paceline.step.phase import Batch, Phase
from paceline.unallocated import build_unallocated

Shapes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Row:
    """A layer of the traced network."""

    kind: str
    parameters: int
    """Trained parameters; a tied one counts for the first layer that has it."""
    calls: int
    backward_nodes: int


@dataclass(frozen=True)
class GradientMemory:
    """The memory of one gradient: allocations and frees in order, and what is in use afterwards."""

    events: tuple[Event, ...]
    gradients: tuple[int, ...]
    """Blocks of the gradients."""
    kept: tuple[int, ...]
    """Blocks of the loss and the output."""
    buffer_bytes: tuple[int, ...]
    """Sizes of the network's tensors that are not trained: buffers and frozen parameters."""
    batch_bytes: tuple[int, ...]
    """Sizes of the inputs and the target."""


@dataclass(frozen=True)
class PhaseShape:
    """What a phase trains, and the memory of its gradient."""

    rule: Rule
    parameter_shapes: Shapes
    memory: GradientMemory


@dataclass(frozen=True)
class NetworkShape:
    """The operations, layers and memory of one gradient of each phase of a network on one batch."""

    operations: tuple[Operation, ...]
    rows: dict[str, Row]
    phases: tuple[PhaseShape, ...]
    parameter_bytes: int
    activation_bytes: int
    """Saved by the forward pass for the backward pass; of several phases, the most."""
    unknown: tuple[str, ...]
    """Operations of no known family, by PyTorch's names."""
    views: int
    """Operations that only make a view of a tensor."""

    @property
    def parameter_shapes(self) -> Shapes:
        return tuple(shape for phase in self.phases for shape in phase.parameter_shapes)

    @property
    def parameter_tensors(self) -> int:
        return len(self.parameter_shapes)

    @property
    def flops(self) -> float:
        return sum(operation.flops for operation in self.operations)


class _OpRecorder(TorchDispatchMode):
    """Records every dispatched operation with its layer, and in `calls`, if given, how to run it alone."""

    def __init__(self, network: nn.Module, calls: TracedCalls | None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.traced_calls = calls
        self.rows = rows_of(network)
        whole = type(network).__name__
        self.owner_of_parameter = {id(p): name.rpartition(".")[0] or whole for name, p in network.named_parameters()}
        self.open: list[tuple[str, int]] = []
        self.made_by: dict[int, str] = {}
        self.calls: dict[str, int] = {}
        self.nodes: dict[str, set[int]] = {}
        self.operations: list[Operation] = []
        self.views = 0
        self.log = AllocationLog()
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
        self.log.see(tensors_in(output))
        direction = "backward" if in_backward() else "forward"
        row = self.open[-1][0] if self.open else OUTSIDE
        if direction == "backward" and self.open:  # activation checkpointing recomputes part of the forward pass
            row = f"{row} {RECOMPUTE}"
        elif (node := torch._C._current_autograd_node()) is not None:
            row = self._owner_of(node)
            self.nodes.setdefault(row, set()).add(id(node))
        self.views += name in VIEWS
        found = classify_op(name, arguments, output)
        if found is not None and not self._is_part_of_dropout(name, found[1]):
            family, sizes, known = found
            if family in CONVOLUTIONS:
                self.log.events.append((len(self.operations), WORKSPACE))
            traffic = traffic_of(function, arguments, keywords or {}, output)
            made = Operation(family, tuple(map(int, sizes)), row, direction, name, known, *traffic)
            self.operations.append(made)
            if self.traced_calls is not None and made.key not in self.traced_calls:
                self.traced_calls[made.key] = TracedCall.of(function, arguments, keywords or {})
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
    phases: Callable[[nn.Module], Sequence[Phase]],
    *,
    name: str = "the network",
    on_gpu: bool = False,
    layout: Callable[[nn.Module], torch.memory_format] = lambda _: torch.contiguous_format,
    change: Callable[[nn.Module], None] = lambda _: None,
    calls: TracedCalls | None = None,
) -> NetworkShape:
    """`build` returns the network, `batch` its input. `on_gpu`: the operations are those that a GPU would run. `layout`
    chooses the memory format of a network and its images. `change` is applied to a copy of the network first. `calls`
    receives how to run each operation alone."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    built = build_unallocated(build, name, mode)
    memory_format = layout(built)
    network = without_values(built, mode, memory_format).train()
    with mode:
        change(network)
    with mode, _quiet("torch._subclasses.fake_tensor"), as_on_gpu() if on_gpu else nullcontext():
        watch, samples, traced = _OpRecorder(network, calls), images_in(batch(), memory_format), list(phases(network))
        tensors = [*network.parameters(), *network.buffers()]
        watch.log.see((*tensors, *_tensors_of(samples)), is_new=False)
        trained = list({id(p): p for phase in traced for p in phase.parameters}.values())
        others = [t for t in tensors if id(t) not in set(map(id, trained))]
        saved = [SavedTensors(watch.log, trained) for _ in traced]
        with watch.recording(), torch.enable_grad():
            each = zip(traced, saved, strict=True)
            shapes = tuple(_traced_phase(phase, samples, watch.log, kept, others) for phase, kept in each)
        rows = _rows(watch, trained)
    unknown = sorted({operation.name for operation in watch.operations if not operation.known})
    return NetworkShape(
        tuple(watch.operations), rows, shapes, sum(p.numel() * p.element_size() for p in trained),
        max(kept.bytes for kept in saved), tuple(unknown), watch.views,
    )  # fmt: skip


def _traced_phase(
    phase: Phase, samples: Batch, log: AllocationLog, kept: SavedTensors, others: Sequence[Tensor]
) -> PhaseShape:
    """`others` are the network's tensors that no phase trains."""
    begun = len(log.events)
    with torch.autograd.graph.saved_tensors_hooks(kept.keep, kept.give):
        outcome = phase.gradient(samples, torch.default_generator)
    events = log.events[begun:]
    made = {number for number, size in events if size >= 0}
    memory = GradientMemory(
        tuple(event for event in events if event[1] == WORKSPACE or event[0] in made),
        tuple(dict.fromkeys(log.number_of(g) for g in outcome.gradients if g is not None)),
        tuple(dict.fromkeys(log.number_of(t) for t in (outcome.loss, outcome.output) if t is not None)),
        tuple(t.untyped_storage().nbytes() for t in others),
        tuple(t.untyped_storage().nbytes() for t in _tensors_of(samples)),
    )
    return PhaseShape(phase.rule, tuple(tuple(p.shape) for p in phase.parameters), memory)


def _tensors_of(samples: Batch) -> list[Tensor]:
    x, y = samples
    return [*(x.tensors.values() if isinstance(x, Fields) else [x]), y]


@contextmanager
def _quiet(name: str) -> Iterator[None]:
    """Silences a logger that prints the traceback of exceptions that are also raised."""
    logger = logging.getLogger(name)
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


def without_values(network: nn.Module, mode: FakeTensorMode, memory_format: torch.memory_format) -> nn.Module:
    """A copy of the network on fake CPU tensors. It may be in use elsewhere, and some of its tensors may be real, on a
    GPU, or on the meta device."""
    made: dict[int, Any] = {}
    for tensor in (*network.parameters(), *network.buffers()):
        with mode:
            empty = torch.empty_like(tensor, device="cpu")
            if tensor.dim() == 4:
                empty = empty.to(memory_format=memory_format)
        made[id(tensor)] = nn.Parameter(empty, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else empty
    with FakeCopyMode(mode):
        return copy.deepcopy(network, made)


def _rows(watch: _OpRecorder, parameters: Sequence[Tensor]) -> dict[str, Row]:
    trained = {id(p) for p in parameters}
    rows = {}
    for row, module in watch.rows.items():
        own = [p for p in module.parameters(recurse=False) if id(p) in trained]
        trained -= {id(p) for p in own}
        nodes = len(watch.nodes.get(row, ()))
        rows[row] = Row(type(module).__name__, sum(p.numel() for p in own), watch.calls.get(row, 0), nodes)
    return rows
