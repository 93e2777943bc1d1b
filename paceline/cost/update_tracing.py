"""Traces the update of the parameters: the operations and memory of an optimizer, as a step runs it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from paceline.cost.allocations import AllocationLog, Event
from paceline.cost.op_classification import classify_op
from paceline.cost.op_replay import TracedCall, TracedCalls
from paceline.cost.operation import Operation, tensors_in, traffic_of
from paceline.step.optimizers import Rule, has_fused_kernel, initial_state, torch_optimizer, update
from paceline.step.own_optimizer import make_optimizer
from paceline.unallocated import small_tensors_real

UPDATE = "(update)"
"""The row of operations that belong to no layer."""
Shapes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class UpdateTrace:
    """What one update runs and allocates once training is under way."""

    operations: tuple[Operation, ...]
    events: tuple[Event, ...]
    first_events: tuple[Event, ...]
    """Of the first update, which makes the optimizer's state where the step has not made it before."""
    state_bytes: tuple[int, ...]
    """State made before the first update."""


class _UpdateRecorder(TorchDispatchMode):
    def __init__(self, calls: TracedCalls) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.log, self.calls = AllocationLog(), calls
        self.operations: list[Operation] = []

    def __torch_dispatch__(
        self, function: Any, types: Sequence[type], arguments: tuple[Any, ...] = (), keywords: Any = None
    ) -> Any:
        output = function(*arguments, **(keywords or {}))
        name = function.__name__.partition(".")[0]
        tensors = tensors_in((arguments, output, list((keywords or {}).values())))
        if all(tensor.numel() <= 1 for tensor in tensors):
            return output  # counts of updates and rates are on the host
        self.log.see(tensors_in(output))
        found = classify_op(name, arguments, output)
        if found is not None:
            family, sizes, known = found
            traffic = traffic_of(function, arguments, keywords or {}, output)
            made = Operation(family, tuple(map(int, sizes)), UPDATE, "update", name, known, *traffic)
            self.operations.append(made)
            self.calls.setdefault(made.key, TracedCall.of(function, arguments, keywords or {}))
        return output


@functools.lru_cache(maxsize=64)
def trace_update(shapes: Shapes, rule: Rule, step: str, on_gpu: bool) -> UpdateTrace:
    """The update of parameters of these shapes in float32; `plain` is that of `torch.optim`, others are flat."""
    return _traced(shapes, rule, step, on_gpu, {})


def update_calls(shapes: Shapes, rule: Rule, step: str) -> TracedCalls:
    """How to run each operation of an update on a CPU alone."""
    calls: TracedCalls = {}
    _traced(shapes, rule, step, False, calls)
    return calls


def _traced(shapes: Shapes, rule: Rule, step: str, on_gpu: bool, calls: TracedCalls) -> UpdateTrace:
    if not shapes:
        return UpdateTrace((), (), (), ())
    if step == "plain" or ":" in rule.optimizer:
        return _plain(shapes, rule, on_gpu, calls)
    return _flat(shapes, rule, on_gpu, calls)


def update_operations(shapes: Shapes, rule: Rule, step: str, on_gpu: bool) -> tuple[Operation, ...]:
    """Those of one update. An optimizer of the user's own that cannot be traced counts as AdamW."""
    try:
        return trace_update(shapes, rule, step, on_gpu).operations
    except Exception:
        if ":" not in rule.optimizer:
            raise
        return trace_update(shapes, Rule("adamw", rule.lr), step, on_gpu).operations


def update_passes(shapes: Shapes, rule: Rule, step: str, on_gpu: bool) -> float:
    """Memory traffic of the update, divided by that of plain SGD by the same kind of step."""
    own, plain = (
        _traffic_bytes(update_operations(shapes, each, step, on_gpu)) for each in (rule, Rule("sgd", rule.lr))
    )
    return own / plain if plain else 0.0


def _traffic_bytes(operations: Sequence[Operation]) -> int:
    return sum(operation.read_bytes + operation.written_bytes for operation in operations)


def _plain(shapes: Shapes, rule: Rule, on_gpu: bool, calls: TracedCalls) -> UpdateTrace:
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with mode:
        parameters = [nn.Parameter(torch.empty(shape)) for shape in shapes]
        for parameter in parameters:
            parameter.grad = torch.empty_like(parameter)
    with small_tensors_real(mode):
        optimizer = _optimizer(rule, parameters)
        for group in optimizer.param_groups if on_gpu else ():
            if group.get("foreach", False) is None and not group.get("fused"):
                group["foreach"] = True  # the default for parameters on a GPU
        first, later = (_recorded(optimizer.step, parameters, calls) for _ in range(2))
        return UpdateTrace(tuple(later.operations), tuple(later.log.events), tuple(first.log.events), ())


def _optimizer(rule: Rule, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    if ":" not in rule.optimizer:
        return torch_optimizer(rule, parameters)
    named = {f"parameter {number}": parameter for number, parameter in enumerate(parameters)}
    return make_optimizer(rule.optimizer, named, rule.lr, "optimizer")[0]


def _flat(shapes: Shapes, rule: Rule, on_gpu: bool, calls: TracedCalls) -> UpdateTrace:
    elements = sum(map(prod, shapes))
    with FakeTensorMode(allow_non_fake_inputs=True):
        buffer, gradient, lr = torch.empty(elements), torch.empty(elements), torch.empty(())
        pieces = [torch.empty(prod(shape)) for shape in shapes]
        state = initial_state(rule, buffer)
        if has_fused_kernel(rule, buffer, on_gpu) and not rule.clip_norm:
            return UpdateTrace((_fused_operation(elements, len(state)),), (), (), _sizes(state.values()))

        def run() -> None:
            torch.cat(pieces, out=gradient)
            update(rule, buffer, gradient, state, lr)

        with torch.no_grad():
            found = _recorded(run, [buffer, gradient, *pieces, *state.values()], calls)
    return UpdateTrace(
        tuple(found.operations), tuple(found.log.events), tuple(found.log.events), _sizes(state.values())
    )


def _sizes(tensors: Any) -> tuple[int, ...]:
    return tuple(tensor.numel() * tensor.element_size() for tensor in tensors)


def _recorded(run: Callable[[], Any], known: Sequence[Tensor], calls: TracedCalls) -> _UpdateRecorder:
    recorder = _UpdateRecorder(calls)
    recorder.log.see(known, is_new=False)
    with recorder:
        run()
    return recorder


def _fused_operation(elements: int, states: int) -> Operation:
    """One kernel reads parameters, gradients and state, and writes parameters and state."""
    read, written = 4 * elements * (2 + states), 4 * elements * (1 + states)
    like_add = elements * (3 + 2 * states) // 3
    return Operation(
        "add_", (like_add,), UPDATE, "update", "_fused_sgd_", read_bytes=read, written_bytes=written
    )  # fmt: skip
