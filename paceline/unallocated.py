"""Builds a network without the memory of its weights: large tensors have a shape but no values.

Under PyTorch's fake tensor mode nothing has values. But constructors compute settings with small tensors, as in
`[rate.item() for rate in torch.linspace(0, 0.1, depth)]`. So operations on small tensors run for real, and only
what is large is fake.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from paceline.errors import NetworkError

if TYPE_CHECKING:
    from torch._subclasses.fake_tensor import FakeTensorMode

Made = TypeVar("Made")

SMALL_BYTES = 64 << 10
"""Results up to this size are real."""
MOST_REAL_BYTES = 256 << 20
"""Real results of one constructor, added up; after that, everything is fake."""
RETRY_BYTES = 1 << 30
"""A constructor that fails on fake tensors is run for real if its tensors need at most this."""


class _TooLarge(Exception):
    """A constructor that is run for real needs more than `RETRY_BYTES`."""


def build_unallocated(build: Callable[[], Made], name: str, mode: FakeTensorMode | None = None) -> Made:
    """What `build` returns, with fake tensors of `mode` where they are large."""
    try:
        with small_tensors_real(mode):
            return build()
    except Exception as error:
        first = error.__cause__ or error
    try:
        with _limited(RETRY_BYTES):
            return build()
    except Exception as error:
        if isinstance(error, _TooLarge) or isinstance(error.__cause__, _TooLarge):
            said = str(first).strip().splitlines()[0] if str(first).strip() else type(first).__name__
            raise NetworkError(
                f"{name} needs the values of its own weights while it is built ({said:.120}), and is too large to be "
                "built for a prediction; build it without that, or measure it"
            ) from error
        raise


@contextmanager
def small_tensors_real(mode: FakeTensorMode | None = None) -> Iterator[FakeTensorMode]:
    """Makes tensors above `SMALL_BYTES` fake in this block."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    fake = mode or FakeTensorMode(allow_non_fake_inputs=True)

    class SmallTensorsReal(TorchDispatchMode):
        real_bytes = 0

        def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), keywords: Any = None) -> Any:
            keywords = keywords or {}
            given = [leaf for leaf in tree_leaves((arguments, keywords)) if isinstance(leaf, torch.Tensor)]
            if any(isinstance(tensor, FakeTensor) for tensor in given):
                with fake:
                    return function(*arguments, **keywords)
            if given and function._schema.is_mutable:
                return function(*arguments, **keywords)
            try:
                with fake:
                    made = function(*arguments, **keywords)
            except Exception:
                return function(*arguments, **keywords)  # it needs values, as `.item()` does, and there are some
            size_bytes = sum(t.numel() * t.element_size() for t in tree_leaves(made) if isinstance(t, torch.Tensor))
            if size_bytes > SMALL_BYTES or self.real_bytes + size_bytes > MOST_REAL_BYTES:
                return made
            self.real_bytes += size_bytes
            return function(*arguments, **keywords)

    with SmallTensorsReal(), _no_rejection_sampling():  # type: ignore[no-untyped-call]
        yield fake


@contextmanager
def _no_rejection_sampling() -> Iterator[None]:
    """`nn.init.trunc_normal_` draws again until all values are within their limits; fake tensors have no values."""
    from torch._subclasses.fake_tensor import FakeTensor
    from torch.nn import init

    name = "_no_grad_trunc_normal_"
    original = getattr(init, name)

    def draw(tensor: Any, *arguments: Any, **keywords: Any) -> Any:
        return tensor if isinstance(tensor, FakeTensor) else original(tensor, *arguments, **keywords)

    setattr(init, name, draw)
    try:
        yield
    finally:
        setattr(init, name, original)


@contextmanager
def _limited(limit_bytes: int) -> Iterator[None]:
    """Raises `_TooLarge` before the tensors made in this block need more than `limit_bytes`."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    fake = FakeTensorMode(allow_non_fake_inputs=True)

    class Limited(TorchDispatchMode):
        made_bytes = 0

        def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), keywords: Any = None) -> Any:
            keywords = keywords or {}
            if not any(isinstance(leaf, torch.Tensor) for leaf in tree_leaves((arguments, keywords))):
                with fake:
                    made = function(*arguments, **keywords)
                self.made_bytes += sum(t.untyped_storage().nbytes() for t in tree_leaves(made))
                if self.made_bytes > limit_bytes:
                    raise _TooLarge
            return function(*arguments, **keywords)

    with Limited():  # type: ignore[no-untyped-call]
        yield
