"""Makes PyTorch choose operations for CPU tensors as it does for tensors on a GPU, while a network is traced.

Fake CUDA tensors need a PyTorch that was built with CUDA, fake CPU tensors do not. What differs is small: which
operations autocast runs in float32 (the list is that of `ATen/autocast_mode.h`), that dropout is one kernel with a
mask of one byte per element, that attention and RMS norm are one kernel, that a group norm wants the channels first,
and that a convolution converts its input to the memory format of its weights.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_leaves, tree_map

from paceline.step.layout import has_channels_last

HALF = (torch.bfloat16, torch.float16)
SAMPLED_CHANNELS = (1, 3)
"""Of samples, whose conversion is part of what a calibration times."""
FLASH_MOST_WIDTH = 256
"""The flash attention kernel takes heads up to this width."""

_IN_FLOAT32 = """
    acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow.Tensor_Scalar pow.Tensor_Tensor
    pow.Scalar softplus layer_norm native_layer_norm group_norm frobenius_norm.dim nuclear_norm nuclear_norm.dim
    cosine_similarity poisson_nll_loss cosine_embedding_loss nll_loss nll_loss2d hinge_embedding_loss kl_div l1_loss
    smooth_l1_loss huber_loss mse_loss margin_ranking_loss multilabel_margin_loss soft_margin_loss triplet_margin_loss
    multi_margin_loss binary_cross_entropy_with_logits dist pdist cdist renorm logsumexp rms_norm upsample_nearest1d
    upsample_nearest2d upsample_nearest3d upsample_linear1d upsample_bilinear2d upsample_trilinear3d upsample_bicubic2d
"""
_TO_FLOAT32 = """
    prod prod.dim_int softmax.int log_softmax.int cumprod cumsum linalg_vector_norm sum sum.dim_IntList
"""
"""Operations that take the type of their result as an argument, so that no tensor is cast before."""


@contextmanager
def as_on_gpu() -> Iterator[None]:
    """Applies to fake tensors; real ones in other threads compute what they did before."""
    library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of every kernel that is replaced
        for names, change in ((_IN_FLOAT32, _with_casts), (_TO_FLOAT32, _with_dtype)):
            for name in filter(_is_cast_on_gpu, names.split()):
                library.impl(name, _autocast(name, change), "AutocastCPU")
        library.impl("dropout", _dropout, "AutogradCPU")
        library.impl("scaled_dot_product_attention", _attention, "AutogradCPU")
        library.impl("rms_norm", _rms_norm, "AutogradCPU")
        library.impl("group_norm", _group_norm, "AutogradCPU")
        library.impl("conv2d", _conv2d, "AutogradCPU")
    try:
        yield
    finally:
        library._destroy()


Call = tuple[tuple[Any, ...], dict[str, Any]]


def _is_cast_on_gpu(name: str) -> bool:
    """Releases of PyTorch differ in a few operations; a build without CUDA knows them, too."""
    known: bool = torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", "AutocastCUDA")
    return known


def _is_half(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dtype in HALF


def _with_casts(call: Call) -> Call:
    cast: Call = tree_map(lambda value: value.float() if _is_half(value) else value, call)
    return cast


def _with_dtype(call: Call) -> Call:
    arguments, keywords = call
    given = keywords.get("dtype") or any(isinstance(value, torch.dtype) for value in arguments)
    return call if given or not _is_half(arguments[0]) else (arguments, {**keywords, "dtype": torch.float32})


def _autocast(name: str, change: Callable[[Call], Call]) -> Callable[..., Any]:
    base, _, overload = name.partition(".")
    function = getattr(getattr(torch.ops.aten, base), overload or "default")
    autocast = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)

    def kernel(*arguments: Any, **keywords: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(autocast):
            if any(isinstance(leaf, FakeTensor) for leaf in tree_leaves(arguments)):
                arguments, keywords = change((arguments, keywords))
            return function(*arguments, **keywords)

    return kernel


def _dropout(x: Tensor, p: float, train: bool) -> Tensor:
    return torch.native_dropout(x, p, train)[0] if train and p > 0 else x


def _attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, *, scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    """The kernel that a GPU runs: flash attention in half precision without a mask, else the memory-efficient one."""
    aten = torch.ops.aten
    found: Tensor
    if not isinstance(query, FakeTensor) or query.dim() != 4 or query.dtype == torch.float64:
        found, *_ = aten._scaled_dot_product_attention_math(
            query, key, value, attn_mask, dropout_p, is_causal, None, scale=scale, enable_gqa=enable_gqa
        )
        return found
    if query.dtype in HALF and attn_mask is None and query.shape[-1] <= FLASH_MOST_WIDTH:
        found, *_ = aten._scaled_dot_product_flash_attention(
            query, key, value, dropout_p, is_causal, False, scale=scale
        )
        return found
    if enable_gqa and key.shape[1] != query.shape[1]:
        times = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(times, 1), value.repeat_interleave(times, 1)
    if attn_mask is not None:
        mask = attn_mask
        if mask.dtype == torch.bool:
            mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill_(mask.logical_not(), float("-inf"))
        attn_mask = mask.expand(*query.shape[:3], key.shape[2])
    found, *_ = aten._scaled_dot_product_efficient_attention(
        query, key, value, attn_mask, torch.is_grad_enabled(), dropout_p, is_causal, scale=scale
    )
    return found


def _group_norm(
    x: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Tensor:  # fmt: skip
    """On a GPU its input and its result have the channels first."""
    batch, channels, *image = x.shape
    if isinstance(x, FakeTensor):
        x = x.contiguous()
    normed: Tensor = torch.native_group_norm(x, weight, bias, batch, channels, prod(image), num_groups, eps)[0]
    return normed


def _conv2d(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
    groups: int = 1,
) -> Tensor:  # fmt: skip
    batched = x.dim() == 4
    images = x if batched else x.unsqueeze(0)
    given = images, weight, bias, *(list(_pair(each)) for each in (stride, padding, dilation)), False, [0, 0], groups
    converts = isinstance(x, FakeTensor) and images.shape[1] not in SAMPLED_CHANNELS
    found: Tensor
    if converts and (has_channels_last(weight) or has_channels_last(images)):
        found = _ChannelsLast.apply(*given)  # type: ignore[no-untyped-call]
    else:
        found = torch.ops.aten.convolution(*given)
    return found if batched else found.squeeze(0)


class _ChannelsLast(torch.autograd.Function):
    """A convolution that converts its input and its gradient where these have the channels first."""

    @staticmethod
    def forward(context: Any, x: Tensor, weight: Tensor, bias: Tensor | None, *options: Any) -> Tensor:
        context.save_for_backward(x, weight)
        context.options = None if bias is None else list(bias.shape), *options
        with torch._C._AutoDispatchBelowAutograd():
            images = x.contiguous(memory_format=torch.channels_last)
            found: Tensor = torch.ops.aten.convolution(images, weight, bias, *options)
        return found

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Any:
        x, weight = context.saved_tensors
        with torch._C._AutoDispatchBelowAutograd():
            last = (each.contiguous(memory_format=torch.channels_last) for each in (gradient, x))
            found = torch.ops.aten.convolution_backward(
                *last, weight, *context.options, list(context.needs_input_grad[:3])
            )
        return (*found, *(None for _ in context.options[1:]))


def _pair(value: Any) -> tuple[int, int]:
    given = tuple(value) if isinstance(value, list | tuple) else (value,)
    return given if len(given) == 2 else (given[0], given[0])


def _rms_norm(x: Tensor, normalized_shape: list[int], weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    if weight is not None and weight.dtype != x.dtype:  # there is no kernel for two types
        dims = list(range(-len(normalized_shape), 0))
        single = x.float()
        added = torch.finfo(single.dtype).eps if eps is None else eps
        factor = (single.pow(2).mean(dims, keepdim=True) + added).rsqrt()
        return (single * factor).to(x.dtype) * weight
    normed: Tensor = _RmsNorm.apply(x, normalized_shape, weight, eps)  # type: ignore[no-untyped-call]
    return normed


class _RmsNorm(torch.autograd.Function):
    """For CPU tensors autograd would take the kernel apart."""

    @staticmethod
    def forward(context: Any, x: Tensor, shape: list[int], weight: Tensor | None, eps: float | None) -> Tensor:
        with torch._C._AutoDispatchBelowAutograd():
            normed, rstd = torch.ops.aten._fused_rms_norm(x, shape, weight, eps)
        context.save_for_backward(x, rstd, weight)
        context.shape = shape
        found: Tensor = normed
        return found

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Any:
        x, rstd, weight = context.saved_tensors
        needed = [context.needs_input_grad[0], context.needs_input_grad[2]]
        with torch._C._AutoDispatchBelowAutograd():
            of_x, of_weight = torch.ops.aten._fused_rms_norm_backward(gradient, x, context.shape, rstd, weight, needed)
        return of_x, None, of_weight, None
