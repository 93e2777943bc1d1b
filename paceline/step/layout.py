"""The memory layout of images and convolution weights: channels first (contiguous) or channels last.

Matrix units read the channels of a pixel side by side. With the channels last, convolutions in half precision need no
conversion before and after each of them; a CPU's convolutions gain in the same way.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from paceline.data.fields import Fields, Inputs
from paceline.workload import MEMORY_FORMATS

HALF_PRECISIONS = ("bfloat16", "float16", "tf32")
"""Precisions whose convolutions run on a GPU's matrix units."""
CHANNELS_SIDE_BY_SIDE = 16


def memory_format_of(asked: str, network: nn.Module, precision: str, *, on_gpu: bool) -> torch.memory_format:
    """The layout that was asked for; `auto` depends on the network, its precision and the kind of device alone."""
    if asked == "auto":
        convolutional = any(isinstance(layer, nn.Conv2d | nn.ConvTranspose2d) for layer in network.modules())
        overrun = not on_gpu and any(map(overruns_memory, network.modules()))
        asked = faster_format(precision, on_gpu=on_gpu) if convolutional and not overrun else "contiguous"
    found = getattr(torch, MEMORY_FORMATS[asked])
    assert isinstance(found, torch.memory_format)
    return found


def overruns_memory(layer: nn.Module) -> bool:
    """Whether the gradient of its weights ends the process on a CPU, with the channels last: for windows of one pixel,
    a stride and channels that are no multiple of sixteen, PyTorch 2.13 writes beyond the memory that it asked for."""
    if not isinstance(layer, nn.Conv2d):
        return False
    channels = layer.in_channels // layer.groups
    return layer.kernel_size == (1, 1) and layer.stride != (1, 1) and channels % CHANNELS_SIDE_BY_SIDE != 0


def faster_format(precision: str, *, on_gpu: bool) -> str:
    """The layout in which convolutions are faster: channels last on a CPU, on a GPU in half precision."""
    return "channels-last" if not on_gpu or precision in HALF_PRECISIONS else "contiguous"


def has_channels_last(tensor: Tensor) -> bool:
    """Whether the order in memory is that of channels last, and not also that of a contiguous tensor."""
    return tensor.dim() == 4 and not tensor.is_contiguous() and tensor.is_contiguous(memory_format=torch.channels_last)


def view_like(numbers: Tensor, like: Tensor) -> Tensor:
    """A view of a flat tensor in the shape and the memory layout of another."""
    if like.dim() == 4 and like.is_contiguous(memory_format=torch.channels_last):
        # With one channel both layouts have the same order; the strides decide which of them PyTorch takes it for.
        return numbers.as_strided(like.shape, like.stride())
    return numbers.view(like.shape)


def flattened_like(tensor: Tensor, like: Tensor) -> Tensor:
    """The numbers of a tensor in the order in which `like` has them in memory."""
    return (tensor.permute(0, 2, 3, 1) if has_channels_last(like) else tensor).reshape(-1)


def same_order(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors of one shape have their numbers in the same order in memory."""
    return all(a == b for size, a, b in zip(one.shape, one.stride(), other.stride(), strict=True) if size > 1)


def images_in(batch: tuple[Inputs, Tensor], memory_format: torch.memory_format) -> tuple[Inputs, Tensor]:
    """The batch with its images in a memory format."""

    def image(tensor: Tensor) -> Tensor:
        return tensor.contiguous(memory_format=memory_format) if tensor.dim() == 4 else tensor

    x, y = batch
    return x.each(image) if isinstance(x, Fields) else image(x), y
