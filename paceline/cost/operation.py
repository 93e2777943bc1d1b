"""One operation of a network: its family, sizes, types and layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from paceline.cost.families import FAMILIES, Sizes
from paceline.step.layout import has_channels_last

OperationKey = tuple[str, str, Sizes, str, bool]
"""What decides how long an operation takes: its name, family, sizes, type, and whether the channels are last."""


@dataclass(frozen=True)
class Operation:
    family: str
    sizes: Sizes
    row: str
    """The layer it belongs to, under the name measurements use."""
    direction: str
    """`forward`, `backward` or `update`."""
    name: str
    """PyTorch's name for it."""
    known: bool = True
    """Whether its family is known; otherwise it is treated as a plain pass over its elements."""
    dtype: str = "float32"
    """Type of what it computes with: that of its first input of floating point numbers."""
    out_dtype: str = "float32"
    """Type of its result; a cast has another one than `dtype`."""
    read_bytes: int = 0
    """Size of all tensors it reads."""
    written_bytes: int = 0
    channels_last: bool = False
    """Whether its first input is stored with the channels last."""

    @property
    def key(self) -> OperationKey:
        return self.name, self.family, self.sizes, self.dtype, self.channels_last

    @property
    def flops(self) -> float:
        return FAMILIES[self.family].work_of(self.sizes)[0]

    @property
    def elements(self) -> float:
        """Elements read and written."""
        return FAMILIES[self.family].work_of(self.sizes)[1]


def traffic_of(
    function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], output: Any
) -> tuple[str, str, int, int, bool]:
    """The last five fields of an operation: types, bytes read and written, and memory format."""
    read = tensors_in((arguments, list(keywords.values())))
    given = (*arguments, *(None for _ in function._schema.arguments[len(arguments) :]))
    changed = [
        value if value is not None else keywords.get(argument.name)
        for argument, value in zip(function._schema.arguments, given, strict=False)
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    written = list({id(t): t for t in (*tensors_in(output), *tensors_in(changed))}.values())
    floats = [t for t in read if t.is_floating_point()] or read or written
    first = floats[0] if floats else None
    last = next((t for t in tensors_in(output)), None)
    last = first if last is None else last
    images = floats[1:3] if function.__name__.startswith("convolution_backward") else [first, last]
    return (_name(first), _name(last), sum(map(_bytes, read)), sum(map(_bytes, written)), _has_channels_last(images))


def _has_channels_last(images: Sequence[Tensor | None]) -> bool:
    """Of images with a single channel both layouts are the same; then the next one counts. The input and the weights
    of a convolution decide how its gradient is computed."""
    for image in images:
        if image is not None and image.dim() == 4 and image.shape[1] > 1:
            return has_channels_last(image)
    return False


def _name(tensor: Tensor | None) -> str:
    return "float32" if tensor is None else str(tensor.dtype).removeprefix("torch.")


def _bytes(tensor: Tensor) -> int:
    """Memory behind a tensor; an expanded one has less than its elements say."""
    return min(tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes())


def tensors_in(value: Any) -> list[Tensor]:
    return [leaf for leaf in leaves_in(value) if isinstance(leaf, Tensor)]


def leaves_in(value: Any) -> list[Any]:
    if isinstance(value, list | tuple):
        return [leaf for item in value for leaf in leaves_in(item)]
    return [value]
