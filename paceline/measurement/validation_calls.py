"""Evaluations inside a training loop: calls of the model without gradients, which belong to no iteration.

From the first call to the last one before training continues, everything is evaluation, its loading and its metrics
included. One pre-hook on the model watches for such calls in all iterations; it costs well under a microsecond.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter_ns
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from paceline.measurement.module_marks import in_backward
from paceline.measurement.session import Session


class ValidationCalls:
    def __init__(self, model: nn.Module, session: Session) -> None:
        self.model, self.session = model, session
        self._depth = 0
        self._handle: RemovableHandle | None = None
        self._ended: int | None = None
        """When the last evaluation ended, if nothing was trained since."""
        self._iteration = -1
        """The iteration it was in."""

    @contextmanager
    def watching(self) -> Iterator[None]:
        if self.model._compiled_call_impl is not None:  # a hook would be compiled with it
            yield
            return
        handle = self.model.register_forward_pre_hook(self._before)
        try:
            yield
        finally:
            handle.remove()

    def _before(self, module: nn.Module, inputs: Any) -> None:
        if torch.is_grad_enabled() or in_backward():
            self._ended = None
        elif not self._depth:
            begun = perf_counter_ns()
            if self._ended is not None and self._iteration == self.session.number:
                begun = self._ended
            self._depth = 1
            hook = lambda *_: self._after(begun)  # noqa: E731
            self._handle = module.register_forward_hook(hook, always_call=True)

    def _after(self, begun: int) -> None:
        assert self._handle is not None
        self._handle.remove()
        self._depth = 0
        self._ended, self._iteration = perf_counter_ns(), self.session.number
        self.session.validated(self._ended - begun)
