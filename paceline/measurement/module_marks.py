"""Marks at module boundaries: forward by module hooks, backward by hooks on the autograd nodes of each module call.

Autograd gives every recorded operation a sequence number. The numbers read when a module call begins and ends enclose
those of its nodes, so each node of the backward pass is attributed to the innermost call that made it, and a pre-hook
on the node marks where its time begins. Module backward hooks cannot do this: they are wrong for the first layer and
fail on in-place operations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import wraps
from threading import get_ident
from time import perf_counter_ns
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils._pytree import tree_leaves

from paceline.errors import PacelineError
from paceline.measurement.mark_log import LOOP, OUTSIDE, RECOMPUTE, VALIDATE, MarkLog, SpanKey, unwrap
from paceline.measurement.module_rows import row_above, rows_of
from paceline.measurement.node_order import is_leaf, nodes_after_others, nodes_from, nodes_towards
from paceline.measurement.row_changes import RowChanges


def sequence_number() -> int:
    return int(torch._C._autograd._get_sequence_nr())


def in_backward() -> bool:
    return int(torch._C._current_graph_task_id()) != -1


def unsupported_reason() -> str | None:
    """Why backward time cannot be attributed with this PyTorch, or None. The calls are private, so they are tested."""
    try:
        x = torch.zeros(1, requires_grad=True, device="cpu")
        before = sequence_number()
        with torch.enable_grad():
            y = x * 2
        assert y.grad_fn is not None
        number = y.grad_fn._sequence_nr()
        in_backward()
    except (AttributeError, AssertionError) as error:
        return f"this PyTorch has no sequence numbers ({error})"
    return None if before <= number < sequence_number() else "this PyTorch numbers operations differently"


@dataclass(slots=True)
class ModuleCall:
    """One call of a module: sequence numbers from `first` up to `end` belong to nodes made in it or in nested calls."""

    row: str
    thread: int
    """Sequence numbers count per thread."""
    depth: int
    before: SpanKey
    """The span key that was current when the call began."""
    first: int
    end: int | None = None
    """None while the call is running."""


class ModuleMarks:
    """While installed, writes a mark to the log wherever execution passes from one module to another."""

    def __init__(self, model: nn.Module, log: Callable[[], MarkLog]) -> None:
        self.model, self.log = model, log
        self.evaluates = True
        """Whether a call without gradients is an evaluation; in a step it is a part of training, such as sampling."""
        self.communicates = any(isinstance(module, DistributedDataParallel) for module in model.modules())
        """Whether gradients are exchanged during the backward pass."""
        self.marks_every_node = False
        """Else only those that run after one of another row, where the order is known: marks take time."""
        self.parameter_rows: dict[int, str] = {}
        self.changes = RowChanges()
        self._coarse = False
        self._outermost: set[str] = set()
        """The rows that were called from outside any module."""
        self._stamps: dict[str, Callable[..., None]] = {}
        self.open: list[ModuleCall] = []
        self.calls: list[ModuleCall] = []
        self.backwards = 0
        self._in_backward = False
        self._validating: str | None = None
        """The row whose call without gradients is running: an evaluation, which is not timed layer by layer."""
        self._resumed: SpanKey = LOOP
        """The span that an evaluation interrupts, and how many marks there were after the last evaluation."""
        self._validated = 0
        self._thread: int | None = None
        """The thread that writes to the log. Other threads are not marked, except those that run a backward pass while
        this one waits for it: nodes on a GPU, and activations they recompute."""

    @contextmanager
    def installed(self, coarse: bool = False) -> Iterator[None]:
        """Installs hooks on every module and on the functions that start a backward pass.

        `coarse` leaves out the layers: only where a forward or a backward pass begins and ends there are marks.
        """
        whole = type(self.model).__name__
        self.forget()
        self._coarse, rows = coarse, rows_of(self.model)
        if coarse:
            rows = {row: module for row, module in rows.items() if row in self._outermost}
        self.parameter_rows = {id(p): row_above(name, rows, whole) for name, p in self.model.named_parameters()}
        with ExitStack() as undo:
            for row, module in rows.items():
                enter, leave = self._hooks(row)
                if module._compiled_call_impl is not None:  # hooks would be compiled with it
                    undo.callback(_hook_compiled_call(module, enter, leave))
                    continue
                undo.callback(module.register_forward_pre_hook(enter).remove)
                undo.callback(module.register_forward_hook(leave, always_call=True).remove)
            for start in ("backward", "grad"):
                watched = self._watched(start, getattr(torch.autograd, start))
                undo.callback(_unwatch, start, watched)
                setattr(torch.autograd, start, watched)
            undo.callback(setattr, self, "_thread", None)
            self._thread = get_ident()
            yield

    def forget(self) -> None:
        """Drops the calls of the previous iteration."""
        self.open, self.calls, self.backwards, self._validating, self._validated = [], [], 0, None, 0
        self.changes.begin(sequence_number())

    def _hooks(self, row: str) -> tuple[Callable[..., None], Callable[..., None]]:
        forward, recomputed = ("forward", row), ("backward", f"{row} {RECOMPUTE}")

        def enter(module: nn.Module, inputs: Any) -> None:
            begun, thread = perf_counter_ns(), get_ident()
            if not self._may_mark(thread) or self._validating is not None:
                return
            log, calls, again = self.log(), self.open, self._in_backward and in_backward()
            # Under a module call with gradients, as in reentrant checkpoints, a call without them is training.
            if self.evaluates and not calls and not torch.is_grad_enabled() and not in_backward():
                self._begin_validation(row, begun)
                return
            first = sequence_number()
            if not calls and not again:
                self._outermost.add(row)
            if thread == self._thread:
                self._crossed(first, calls[-1].row if calls else OUTSIDE, inputs)
            calls.append(ModuleCall(row, thread, len(calls), log.current, first))
            log.mark_since("module", recomputed if again else forward, begun)

        def leave(module: nn.Module, inputs: Any, output: Any) -> None:
            begun, thread = perf_counter_ns(), get_ident()
            if not self._may_mark(thread):
                return
            if self._validating is not None:
                if self._validating == row:
                    self._end_validation()
                return
            if not self.open or self.open[-1].row != row:
                return
            call = self.open.pop()
            call.end = sequence_number()
            if thread == self._thread:
                self._crossed(call.end, row, output)
            self.calls.append(call)
            self.log().mark_since("module", self._after(call.before, ("forward", OUTSIDE)), begun)

        return enter, leave

    def _crossed(self, number: int, row: str, tensors: Any) -> None:
        if number > self.changes.last and not self._coarse:
            if row not in self._stamps:
                self._stamps[row] = self._at_node(("backward", row))
            self.changes.crossed(number, row, tensors, self._stamps[row])

    def _begin_validation(self, row: str, begun: int) -> None:
        log = self.log()
        self._validating, self._resumed = row, log.current
        if len(log.marks) == self._validated:  # what lies between two calls without gradients is evaluation, too
            log.rename_current(VALIDATE)
        log.mark_since("module", VALIDATE, begun)

    def _end_validation(self) -> None:
        log = self.log()
        log.mark("module", self._resumed)
        self._validating, self._validated = None, len(log.marks)

    def _may_mark(self, thread: int) -> bool:
        return self._thread is not None and (thread == self._thread or (self._in_backward and in_backward()))

    def _after(self, before: SpanKey, otherwise: SpanKey) -> SpanKey:
        """The interrupted span resumes: an outer module, a node that recomputes, an update that evaluates a closure."""
        return before if self.open or in_backward() or before[0] == "update" else otherwise

    def _watched(self, start: str, original: Callable[..., Any]) -> Callable[..., Any]:
        """`torch.autograd.backward` or `grad`, with marks at the nodes that it will run."""

        @wraps(original)
        def watched(*arguments: Any, **keywords: Any) -> Any:
            inner = watched.__wrapped__
            if not self._may_mark(get_ident()):
                return inner(*arguments, **keywords)
            begun, log = perf_counter_ns(), self.log()
            before = log.current
            ends = arguments[0] if arguments else keywords.get("tensors", keywords.get("outputs"))
            inputs = arguments[1] if start == "grad" and len(arguments) > 1 else keywords.get("inputs")
            handles = []
            if not (self._coarse or self.changes.suffice()):
                handles = self._mark_nodes(
                    _tensors(ends), None if inputs is None else _tensors(inputs), start == "grad"
                )
            within, self._in_backward = self._in_backward, True
            log.mark_since("walk", ("backward", OUTSIDE), begun)
            try:
                return inner(*arguments, **keywords)
            finally:
                begun = perf_counter_ns()
                self._in_backward = within
                for handle in handles:
                    handle.remove()
                self.backwards += 1
                self.changes.end_backward()
                log.mark_since("walk", self._after(before, LOOP), begun)

        return watched

    def _mark_nodes(
        self, ends: Sequence[Tensor], inputs: Sequence[Tensor] | None = None, grad: bool = False
    ) -> list[Any]:
        """`inputs`: the tensors whose gradients are asked for, if not of all leaves; `grad`: returns them."""
        made_by: dict[int, str] = {}
        now, thread = sequence_number(), get_ident()
        mine = (call for call in self.calls + self.open if call.thread == thread)
        for call in sorted(mine, key=lambda call: call.depth):  # inner calls overwrite outer ones
            made_by.update(dict.fromkeys(range(call.first, now if call.end is None else call.end), call.row))
        roots = [end.grad_fn for end in ends if end.grad_fn is not None]
        nodes = nodes_from(roots)
        keys = {node: self._key_of(node, made_by) for node in nodes}
        if not (self.marks_every_node or self.communicates) and all(end.device.type == "cpu" for end in ends):
            if inputs is None:
                nodes = nodes_after_others(roots, nodes, keys.__getitem__)
                self.changes.searched((node, keys[node][1]) for node in nodes)
            elif grad and all(tensor.grad_fn is None for tensor in inputs):
                nodes = nodes_after_others(roots, nodes_towards(nodes, inputs), keys.__getitem__)
                self.changes.searched((node, keys[node][1]) for node in nodes)
        handles = []
        for node in nodes:
            handles.append(node.register_prehook(self._at_node(keys[node])))
            if self.communicates and hasattr(node, "variable"):
                # DDP starts exchanging the gradient here, and waits for the exchange after the last one.
                handles.append(node.register_hook(self._at_node(("communicate", ""))))
        return handles

    def _at_node(self, key: SpanKey) -> Callable[..., None]:
        def stamp(*gradients: Any) -> None:
            # Nodes on a GPU run in a separate thread while this one waits for them.
            if self._in_backward:
                self.log().mark("node", key)

        return stamp

    def _key_of(self, node: Any, made_by: dict[int, str]) -> SpanKey:
        """The innermost module call whose numbers enclose the node's; for AccumulateGrad, the parameter's module."""
        number = node._sequence_nr()
        if is_leaf(node):
            return "backward", self.parameter_rows.get(id(node.variable), OUTSIDE)
        return "backward", made_by.get(number, OUTSIDE)


def _tensors(given: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(given) if isinstance(leaf, Tensor)]


def _unwatch(start: str, watched: Any) -> None:
    unwrap(getattr(torch.autograd, start), watched, lambda original: setattr(torch.autograd, start, original))


def _hook_compiled_call(
    module: nn.Module, enter: Callable[..., None], leave: Callable[..., None]
) -> Callable[[], None]:
    """Calls the hooks around a module that was compiled in place; returns a function that removes them."""
    compiled: Any = module._compiled_call_impl

    @wraps(compiled)
    def call(*arguments: Any, **keywords: Any) -> Any:
        enter(module, arguments)
        try:
            return compiled(*arguments, **keywords)
        finally:
            leave(module, arguments, None)

    module._compiled_call_impl = call
    return lambda: setattr(module, "_compiled_call_impl", compiled)


def check_supported() -> None:
    obstacle = unsupported_reason()
    if obstacle:
        raise PacelineError(f"layers cannot be measured: {obstacle}")
