"""Records one step, forward, backward and update, as one graph of PyTorch operations.

The step is run once on tensors without values, through autograd, so whatever computes a gradient can be recorded: a
custom loss, several phases, micro-batches. Python code between the operations runs only now, as with a CUDA graph.
Every tensor that the step reads becomes an input of the graph, so it sees what is written to them later; parameters
become views of their flat buffer.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx
from torch._subclasses import FakeTensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from paceline.step.flat_parameters import FlatParameters
from paceline.step.layout import has_channels_last

aten = torch.ops.aten


@dataclass(frozen=True, eq=False)
class TracedStep:
    graph: fx.GraphModule
    """A function of `inputs`, followed by the arguments of the step."""
    inputs: tuple[Tensor, ...]
    """The flat parameters and all other tensors that the step reads or changes."""


def trace_step(step: Callable[..., Sequence[Tensor]], arguments: Sequence[Tensor], flat: FlatParameters) -> TracedStep:
    """The graph of `step(*arguments)`. No tensor changes; random numbers are drawn when the graph runs."""
    changes = _RealChanges()

    def watched(*given: Tensor) -> Sequence[Tensor]:
        with changes:
            return step(*given)

    try:
        with torch.enable_grad():
            graph = make_fx(watched, tracing_mode="fake", _allow_non_fake_inputs=True)(*arguments)
    finally:
        changes.undo()
    assert isinstance(graph, fx.GraphModule)
    return TracedStep(graph, _lift(graph, flat))


class _RealChanges(TorchDispatchMode):
    """Undoes changes of real tensors: an operation on those alone, such as counting updates, runs while recording."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._before: dict[int, tuple[Tensor, Tensor]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for argument, value in zip(func._schema.arguments, args, strict=False):
            written = argument.is_write and isinstance(value, Tensor) and not isinstance(value, FakeTensor)
            if written and id(value) not in self._before:
                with _disable_current_modes(), torch.no_grad():
                    self._before[id(value)] = value, value.detach().clone()
        return func(*args, **(kwargs or {}))

    def undo(self) -> None:
        with torch.no_grad():
            for tensor, value in self._before.values():
                tensor.copy_(value)


def _lift(module: fx.GraphModule, flat: FlatParameters) -> tuple[Tensor, ...]:
    """Turns the tensors that are constants of the graph into inputs before its own, and returns them."""
    graph = module.graph
    constants = [node for node in graph.nodes if node.op == "get_attr"]
    values = {node: _attribute(module, str(node.target)) for node in constants}
    parameters = {id(parameter): place for place, parameter in enumerate(flat.parameters)}
    inputs: list[Tensor] = [flat.buffer]
    with graph.inserting_before(next(iter(graph.nodes))):
        nodes = {id(flat.buffer): graph.placeholder("parameters")}
        for value in values.values():
            if id(value) not in parameters and id(value) not in nodes:
                nodes[id(value)] = graph.placeholder(f"tensor_{len(inputs)}")
                inputs.append(value)
    with graph.inserting_before(next(node for node in graph.nodes if node.op != "placeholder")):
        views = _views(graph, nodes[id(flat.buffer)], flat)
        for place, value in enumerate(inputs):
            if value.dim() == 0:  # the compiler takes a float64 without dimensions for a number, and changes are lost
                inputs[place] = value.view(1)
                nodes[id(value)] = graph.call_function(aten.squeeze.dim, (nodes[id(value)], 0))
    for node, value in values.items():
        at = parameters.get(id(value))
        node.replace_all_uses_with(nodes[id(value)] if at is None else views[at])
        graph.erase_node(node)
    graph.lint()
    module.recompile()
    return tuple(inputs)


def _attribute(module: fx.GraphModule, path: str) -> Tensor:
    found = operator.attrgetter(path)(module)
    assert isinstance(found, Tensor)
    return found


def _views(graph: fx.Graph, buffer: fx.Node, flat: FlatParameters) -> list[fx.Node]:
    """The parameters as views of the flat buffer, as `FlatParameters.split` makes them."""
    pieces = graph.call_function(aten.split_with_sizes.default, (buffer, flat.sizes))
    views = []
    for place, parameter in enumerate(flat.parameters):
        piece = graph.call_function(operator.getitem, (pieces, place))
        shape = list(parameter.shape)
        if has_channels_last(parameter):
            count, channels, height, width = shape
            last = graph.call_function(aten.view.default, (piece, [count, height, width, channels]))
            views.append(graph.call_function(aten.permute.default, (last, [0, 3, 1, 2])))
        else:
            views.append(graph.call_function(aten.view.default, (piece, shape)))
    return views
