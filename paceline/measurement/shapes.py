"""Each layer's work, recorded in one forward pass: arithmetic, bytes moved, and memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.nn.utils.rnn import PackedSequence
from torch.utils._pytree import tree_leaves

from paceline.measurement.module_marks import in_backward
from paceline.measurement.module_rows import is_compiled, rows_of
from paceline.step.arithmetic import flops_of_call


@dataclass
class LayerShape:
    kind: str
    calls: int = 0
    flops: float = 0.0
    backward_flops: float = 0.0
    """The forward FLOP once for the gradient of trained weights, and once for the gradient of inputs where needed."""
    bytes: int = 0
    activation_bytes: int = 0
    parameters: int = 0
    parameter_bytes: int = 0
    """Bytes of the trained parameters; gradients and updates have this size."""


class ShapeRecorder:
    """Hooks for one forward pass that fill `layers`, under the names the marks use."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.layers: dict[str, LayerShape] = {}
        self.evaluates = True
        """As of `ModuleMarks`."""
        self._trained = False
        """Whether a trained module was called before: only then is the gradient of an input needed."""
        self._trains = True
        """Whether gradients were enabled when recording began: a call without them is then an evaluation."""
        self._open: list[bool] = []
        """For each module call that is running, whether it is part of an evaluation."""

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Records one forward pass and drops earlier counts."""
        rows = rows_of(self.model)
        self._trained, self._open, self._trains = False, [], torch.is_grad_enabled()
        self.layers = {row: LayerShape(type(module).__name__) for row, module in rows.items()}
        hooked = {row: module for row, module in rows.items() if module._compiled_call_impl is None}
        handles = [module.register_forward_pre_hook(self._enter) for module in hooked.values()]
        handles += [
            module.register_forward_hook(self._count(self.layers[row]), with_kwargs=True, always_call=True)
            for row, module in hooked.items()
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()
            self._count_parameters(rows)

    def _count_parameters(self, rows: dict[str, nn.Module]) -> None:
        """Runs after the pass, because a lazy module has no parameters before. Tied ones count for the first module."""
        seen: set[int] = set()
        for row, module in rows.items():
            for parameter in module.parameters(recurse=is_compiled(module)):
                if id(parameter) in seen or is_lazy(parameter):
                    continue
                seen.add(id(parameter))
                self.layers[row].parameters += parameter.numel()
                self.layers[row].parameter_bytes += parameter.requires_grad * _bytes([parameter])

    def _enter(self, module: nn.Module, inputs: Any) -> None:
        evaluates = self._open[-1] if self._open else self._trains and not torch.is_grad_enabled()
        self._open.append(self.evaluates and evaluates)

    def _count(self, shape: LayerShape) -> Any:
        def count(module: nn.Module, inputs: Any, keywords: Any, output: Any) -> None:
            if (self._open.pop() if self._open else False) or in_backward():
                return  # an evaluation, or recomputed for a checkpoint
            shape.calls += 1
            if list(module.children()) and not is_compiled(module):
                return  # its children are counted
            read, written = _tensors((inputs, keywords)), _tensors(output)
            shape.activation_bytes += _bytes(written)
            shape.bytes += _bytes(read) + _bytes(written) + _bytes(module.parameters())
            flops, trains = flops_of_call(module, read, written), any(p.requires_grad for p in module.parameters())
            shape.flops += flops
            if torch.is_grad_enabled() or not self._trains:
                shape.backward_flops += flops * (trains + (self._trained or any(t.requires_grad for t in read)))
                self._trained = self._trained or trains

        return count


def _tensors(values: Any) -> list[Tensor]:
    leaves = tree_leaves(values, is_leaf=lambda value: isinstance(value, PackedSequence))
    return [t.data if isinstance(t, PackedSequence) else t for t in leaves if isinstance(t, Tensor | PackedSequence)]


def _bytes(tensors: Iterable[Tensor]) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)
