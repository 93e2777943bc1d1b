"""Runs operations of a traced network alone, with tensors of the same shapes, strides and types.

Sampled sizes show how a device computes a family of operations; these show what the operations of one network take.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import interpolate
from torch.utils._pytree import tree_leaves, tree_map

from paceline.cost.operation import OperationKey
from paceline.cost.trials import OperationCall

COARSER = 4
"""Pixels over which images change."""
INDICES = 2
"""Integers are drawn below this: as an index or a class they are valid in any tensor with two entries."""


@dataclass(frozen=True)
class TensorForm:
    """All of a tensor but its values."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype

    @staticmethod
    def of(tensor: Tensor) -> TensorForm:
        return TensorForm(tuple(map(int, tensor.shape)), tuple(map(int, tensor.stride())), tensor.dtype)

    @property
    def size_bytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize

    def made(self) -> Tensor:
        """Values between 0.5 and 1.5: variances have to be positive, and denormal numbers are slow."""
        if not self.dtype.is_floating_point:
            return self._strided(lambda count: torch.empty(count, dtype=self.dtype).random_(0, INDICES))
        made = self._strided(lambda count: torch.empty(count, dtype=self.dtype).uniform_(0.5, 1.5))
        if len(self.shape) == 4 and min(self.shape[2:]) >= COARSER:
            made.copy_(_smooth(self.shape))
        return made

    def _strided(self, values: Callable[[int], Tensor]) -> Tensor:
        """A view of as many values as its strides reach."""
        size = 1 + sum((n - 1) * stride for n, stride in zip(self.shape, self.strides, strict=True))
        return values(0 if 0 in self.shape else size).as_strided(self.shape, self.strides)


def _smooth(shape: tuple[int, ...]) -> Tensor:
    """Images in which neighbouring pixels are alike: pooling is slower where the largest pixel cannot be guessed."""
    images, channels, height, width = shape
    coarse = torch.empty(images, channels, height // COARSER, width // COARSER).uniform_(0.5, 1.5)
    return interpolate(coarse, (height, width), mode="bilinear")


@dataclass(frozen=True)
class TracedCall:
    """A call of one of PyTorch's operations, whose tensors are `TensorForm`s."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]

    @staticmethod
    def of(function: Callable[..., Any], arguments: tuple[Any, ...], keywords: dict[str, Any]) -> TracedCall:
        return TracedCall(function, _mapped(Tensor, TensorForm.of, arguments), _mapped(Tensor, TensorForm.of, keywords))

    @property
    def is_safe(self) -> bool:
        """Whether any values will do: of PyTorch's own operations, but not where bytes are passed on. They are a
        library's working memory, from which it may read addresses."""
        forms = self._forms()
        own = getattr(self.function, "namespace", "") == "aten"
        return own and all(form.dtype != torch.uint8 for form in forms)

    @property
    def size_bytes(self) -> int:
        """Memory of its tensors."""
        return sum(form.size_bytes for form in self._forms())

    def _forms(self) -> list[TensorForm]:
        return [leaf for leaf in tree_leaves((self.arguments, self.keywords)) if isinstance(leaf, TensorForm)]

    def made(self) -> OperationCall:
        """The call with new tensors. What the operation before it has just written is its first one, as in a network:
        the input, or the gradient in a backward pass."""
        function = self.function
        arguments, keywords = (_mapped(TensorForm, TensorForm.made, each) for each in (self.arguments, self.keywords))
        tensors = [leaf for leaf in tree_leaves((arguments, keywords)) if isinstance(leaf, Tensor)]
        fresh = next((t for t in tensors if t.is_floating_point()), torch.empty(0))
        return OperationCall(lambda: function(*arguments, **keywords), fresh)


TracedCalls = dict[OperationKey, TracedCall]


def _mapped(kind: type, change: Callable[[Any], Any], given: Any) -> Any:
    return tree_map(lambda leaf: change(leaf) if isinstance(leaf, kind) else leaf, given)
