"""Marks at what a custom loop calls between its modules: loading, clipping and scaling gradients.

Loops import these functions by name, so replacing a name in torch would be too late. The clipping functions are
wrappers around an inner function: the inner one is replaced for as long as the marks are installed. Methods are
replaced in their class.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import wraps
from typing import Any

import torch
from torch.amp.grad_scaler import GradScaler
from torch.nn.utils import clip_grad_norm_, clip_grad_value_
from torch.utils.data.dataloader import _BaseDataLoaderIter

from paceline.measurement.mark_log import MarkLog, SpanKey, mark_around, marked, unwrap

SCALER_METHODS = ("scale", "unscale_", "step", "update")


def mark_loop(log: MarkLog) -> ExitStack:
    """Marks for one sampling window; closing the stack removes them."""
    stack = ExitStack()
    for clip in (clip_grad_norm_, clip_grad_value_):
        stack.callback(_mark_inner(clip, log, ("clip", "")))
    for method in SCALER_METHODS:
        stack.callback(mark_around(GradScaler, method, log, ("scale", "")))
    stack.callback(_mark_loaders(log))
    return stack


def _mark_inner(wrapper: Callable[..., Any], log: MarkLog, key: SpanKey) -> Callable[[], None]:
    """Marks the function that `wrapper` calls; does nothing where PyTorch has no such wrapper."""
    cells: tuple[Any, ...] = getattr(wrapper, "__closure__", None) or ()
    cell = next((cell for cell in cells if callable(cell.cell_contents)), None)
    if cell is None:
        return lambda: None
    wrapper = cell.cell_contents = marked(cell.cell_contents, log, key, None)
    return lambda: unwrap(cell.cell_contents, wrapper, lambda inner: setattr(cell, "cell_contents", inner))


def _mark_loaders(log: MarkLog) -> Callable[[], None]:
    """Time that the loop waits for any DataLoader is loading, except in an evaluation."""

    @wraps(_BaseDataLoaderIter.__next__)
    def following(self: Any) -> Any:
        if not torch.is_grad_enabled():
            return following.__wrapped__(self)
        return marked(following.__wrapped__, log, ("load", ""), None)(self)

    _BaseDataLoaderIter.__next__ = following  # type: ignore[method-assign]
    put_back = lambda original: setattr(_BaseDataLoaderIter, "__next__", original)  # noqa: E731
    return lambda: unwrap(_BaseDataLoaderIter.__next__, following, put_back)
