"""Where an iteration of a custom loop ends: with an update, however the loop is written.

Between two updates there may be several batches (gradient accumulation), several calls of `clock.step()`, and several
optimizers. Hooks on optimizers see every update. Where the loop takes its batches from the clock, or calls
`clock.step()`, the iteration ends at the first of these after the update; otherwise with the update itself. A loop
without any optimizer of PyTorch's, which writes out its update, ends an iteration at every batch or step.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from paceline.measurement.mark_log import LOOP, SpanKey
from paceline.measurement.module_marks import in_backward
from paceline.measurement.session import Session


class IterationEnds:
    def __init__(self, session: Session, model: nn.Module, optimizers: tuple[Optimizer, ...]) -> None:
        self.session, self.model, self.optimizers = session, model, optimizers
        self.in_batches = False
        """Whether the loop takes its batches from the clock now."""
        self._steps = False
        """Whether the loop calls `clock.step()`."""
        self._ever_updated = False
        self._updated = False
        """Whether there was an update in this iteration."""
        self._stepped = False
        """Whether `clock.step()` was called since the last batch."""
        self._ended = False
        """Whether an iteration has ended."""
        self._ours: dict[int, bool] = {}
        self._resumed: list[SpanKey] = []
        """For each step that is running, the span that it interrupted."""

    @contextmanager
    def watching(self) -> Iterator[None]:
        before = register_optimizer_step_pre_hook(self._before)
        after = register_optimizer_step_post_hook(self._after)
        try:
            yield
        finally:
            before.remove()
            after.remove()

    def _is_ours(self, optimizer: Optimizer) -> bool:
        known = self._ours.get(id(optimizer))
        if known is None:
            known = optimizer in self.optimizers if self.optimizers else self._holds_parameters(optimizer)
            self._ours[id(optimizer)] = known
        return known

    def _holds_parameters(self, optimizer: Optimizer) -> bool:
        mine = {id(parameter) for parameter in self.model.parameters()}
        return any(id(parameter) in mine for group in optimizer.param_groups for parameter in group["params"])

    def _before(self, optimizer: Optimizer, arguments: Any, keywords: Any) -> None:
        if not self._is_ours(optimizer):
            return
        log = self.session.log
        self._resumed.append(log.current if log is not None else LOOP)
        self.session.mark(("update", ""))

    def _after(self, optimizer: Optimizer, arguments: Any, keywords: Any) -> None:
        if not self._is_ours(optimizer):
            return
        self.session.mark(self._resumed.pop() if self._resumed else LOOP)
        if self._resumed:  # a step within a step: of the class that it extends
            return
        if not self._ever_updated:
            self._ever_updated = True
            if self._ended:
                self.session.restart()  # what was counted so far was a part of an iteration each
        self._updated = True
        if not self.in_batches and not self._steps and not in_backward() and self._is_last(optimizer):
            self._end()

    def _is_last(self, optimizer: Optimizer) -> bool:
        """Of several optimizers, the one that was given last, or that was seen last for the first time."""
        if self.optimizers:
            return optimizer is self.optimizers[-1]
        return id(optimizer) == [key for key, ours in self._ours.items() if ours][-1]

    def at_batch(self) -> bool:
        """The loop asks for the next batch. Returns whether an iteration ends."""
        stepped, self._stepped = self._stepped, False
        if self._updated or (not self._ever_updated and not stepped):
            self._end()
            return True
        return False

    def at_step(self) -> bool:
        """`clock.step()` was called. Returns whether an iteration ends."""
        self._steps = self._stepped = True
        if self._updated or not self._ever_updated:
            self._end()
            return True
        return False

    def _end(self) -> None:
        self._updated, self._ended = False, True
        self._resumed.clear()
        self.session.end_iteration()
