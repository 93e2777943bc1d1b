"""Calls a function with each parameter's gradient as soon as the backward pass has computed it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from torch import Tensor, nn

OnGradient = Callable[[int, Tensor], None]
"""Called with a parameter's number and its gradient."""


@contextmanager
def announced(parameters: Sequence[nn.Parameter], on_gradient: OnGradient | None) -> Iterator[None]:
    """During a backward pass in this context `on_gradient` is called.

    Hooks are registered each time, so they come after those of the user and receive what those return.
    """
    hooks = []
    if on_gradient is not None:
        hooks = [parameter.register_hook(partial(on_gradient, n)) for n, parameter in enumerate(parameters)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
