"""Callables for operations of given sizes, forward and backward, that can be timed on a device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor
from torch.nn import functional as F

from paceline.cost.families import Sizes
from paceline.step.flat_parameters import FlatParameters
from paceline.step.layout import overruns_memory

Call = Callable[[], object]
DRAWN = 1 << 20
FORMAT = torch.contiguous_format
COLOURS = (1, 3)
"""Channels of samples, in grey or in colour."""
MOST_POOLED, POOLED_ROW = 512, 8192
"""Channels of the images that are pooled, if they come last, and channels times height: small images have more."""


@dataclass(frozen=True)
class OperationCall:
    """An operation to time."""

    run: Call
    fresh: Tensor
    """What the operation before it in a network has just written: the input, or the gradient in a backward pass."""

    def __call__(self) -> object:
        return self.run()


Calls = dict[str, OperationCall]


def calls_of(
    kind: str, sizes: Sizes, device: torch.device, dtype: torch.dtype, *, channels_last: bool = False
) -> Calls:
    """Calls by family; `convolution` includes its two kinds of backward pass with the same sizes."""
    if kind in _IMAGE_MAKERS:
        return _IMAGE_MAKERS[kind](sizes, device, dtype, torch.channels_last if channels_last else FORMAT)
    make = _MAKERS.get(kind)
    if make is None:
        return _pointwise(kind, sizes, device, dtype)
    return make(sizes, device, dtype)


def _random(
    *shape: int, device: torch.device, dtype: torch.dtype, grad: bool = False, layout: torch.memory_format = FORMAT
) -> Tensor:
    """Values of magnitude one, because denormals are slow on a CPU. A large tensor repeats a smaller random one."""
    count = prod(shape)
    drawn = torch.randn(min(count, DRAWN), device=device, dtype=torch.float32).to(dtype)
    if count > DRAWN:
        drawn = drawn.repeat(-(-count // DRAWN))[:count]
    made = torch.empty(shape, device=device, dtype=dtype, memory_format=layout) if layout != FORMAT else None
    return (drawn.view(shape) if made is None else made.copy_(drawn.view(shape))).requires_grad_(grad)


def _with_backward(family: str, forward: Callable[[], Tensor], x: Tensor, inputs: list[Tensor]) -> Calls:
    """`x` is the input of the forward pass, `inputs` what has a gradient."""
    output = forward()
    gradient = torch.empty_like(output).copy_(_random(*output.shape, device=output.device, dtype=output.dtype))
    backward = OperationCall(lambda: torch.autograd.grad(output, inputs, gradient, retain_graph=True), gradient)
    return {family: OperationCall(forward, x), f"{family}_backward": backward}


def _matmul(sizes: Sizes, device: torch.device, dtype: torch.dtype) -> Calls:
    batch, m, n, k, layout, bias = sizes
    lead = (batch,) if batch > 1 else ()

    def matrix(rows: int, columns: int, flipped: bool) -> Tensor:
        shape = (*lead, columns, rows) if flipped else (*lead, rows, columns)
        made = _random(*shape, device=device, dtype=dtype)
        return made.transpose(-1, -2) if flipped else made

    a, b = matrix(m, k, layout == 2), matrix(k, n, layout == 0)
    if bias:
        added = _random(n, device=device, dtype=dtype)
        return {"matmul": OperationCall(lambda: torch.addmm(added, a, b), a)}
    return {"matmul": OperationCall((lambda: torch.mm(a, b)) if batch == 1 else (lambda: torch.bmm(a, b)), a)}


def _convolution(sizes: Sizes, device: torch.device, dtype: torch.dtype, layout: torch.memory_format) -> Calls:
    n, c, h, w, k, r, s, p, q, groups, biased = sizes
    if layout != FORMAT and h == r == 1:
        raise NotImplementedError("a sequence has no such layout")
    stride = max(1, round(h / p)), max(1, round(w / q))
    padding = _padding(h, r, p, stride[0]), _padding(w, s, q, stride[1])
    like = torch.nn.Conv2d(c, k, (r, s), stride, groups=groups, device="meta")
    if layout != FORMAT and device.type == "cpu" and overruns_memory(like):
        raise NotImplementedError("PyTorch writes beyond its memory, and nothing is trained in this layout")
    weight = _random(k, c // groups, r, s, device=device, dtype=dtype, grad=True, layout=layout)
    bias = _random(k, device=device, dtype=dtype, grad=True) if biased else None
    trained = [weight] if bias is None else [weight, bias]

    sampled = c in COLOURS and r > 1  # samples come as they were read, and have no gradient

    def made(grad: bool) -> tuple[OperationCall, OperationCall]:
        given = FORMAT if sampled and not grad else layout
        x = _random(n, c, h, w, device=device, dtype=dtype, grad=grad, layout=given)
        forward = lambda: F.conv2d(x, weight, bias, stride=stride, padding=padding, groups=groups)  # noqa: E731
        calls = _with_backward("convolution", forward, x, [x, *trained] if grad else trained)
        return calls["convolution"], calls["convolution_backward"]

    forward, backward = made(True)
    first_layer, weight_only = made(False)
    return {
        "convolution": first_layer if sampled else forward,
        "convolution_backward": backward,
        "convolution_backward_weight": weight_only,
    }


def _padding(size: int, window: int, outputs: int, stride: int) -> int:
    return max(0, -(-((outputs - 1) * stride + window - size) // 2))


def _batch_norm(sizes: Sizes, device: torch.device, dtype: torch.dtype, layout: torch.memory_format) -> Calls:
    n, c, hw = sizes
    side = max(1, int(hw**0.5))
    x = _random(n, c, side, hw // side, device=device, dtype=dtype, grad=True, layout=layout)
    weight, bias = (_random(c, device=device, dtype=torch.float32, grad=True) for _ in range(2))
    mean, variance = torch.zeros(c, device=device), torch.ones(c, device=device)
    if n * hw == 1:
        return {}
    forward = lambda: F.batch_norm(x, mean, variance, weight, bias, training=True)  # noqa: E731
    return _with_backward("batch_norm", forward, x, [x, weight, bias])


def _layer_norm(sizes: Sizes, device: torch.device, dtype: torch.dtype) -> Calls:
    rows, width = sizes
    x = _random(rows, width, device=device, dtype=dtype, grad=True)
    weight, bias = (_random(width, device=device, dtype=dtype, grad=True) for _ in range(2))
    return _with_backward("layer_norm", lambda: F.layer_norm(x, (width,), weight, bias), x, [x, weight, bias])


def _softmax(sizes: Sizes, device: torch.device, dtype: torch.dtype) -> Calls:
    x = _random(*sizes, device=device, dtype=dtype, grad=True)
    return _with_backward("softmax", lambda: F.log_softmax(x, -1), x, [x])


def _images(planes: int, height: int, layout: torch.memory_format) -> tuple[int, int]:
    """Images and channels; only where the channels come first the planes are alike."""
    if layout == FORMAT:
        return 1, planes
    most = max(32, min(MOST_POOLED, POOLED_ROW // height))
    channels = max(c for c in range(1, most + 1) if planes % c == 0)
    return planes // channels, channels


def _max_pool(sizes: Sizes, device: torch.device, dtype: torch.dtype, layout: torch.memory_format) -> Calls:
    planes, h, w, p, _, window = sizes
    side = round(window**0.5)
    stride = max(1, round((h - side) / max(1, p - 1))) if p > 1 else side
    x = _random(*_images(planes, h, layout), h, w, device=device, dtype=dtype, grad=True, layout=layout)
    return _with_backward("max_pool", lambda: F.max_pool2d(x, side, stride), x, [x])


def _average_pool(sizes: Sizes, device: torch.device, dtype: torch.dtype, layout: torch.memory_format) -> Calls:
    planes, h, w, _, _, window = sizes
    side = round(window**0.5)
    x = _random(*_images(planes, h, layout), h, w, device=device, dtype=dtype, grad=True, layout=layout)
    return _with_backward("average_pool", lambda: F.avg_pool2d(x, side), x, [x])


def _reduce(sizes: Sizes, device: torch.device, dtype: torch.dtype) -> Calls:
    x = _random(*sizes, device=device, dtype=dtype)
    return {"reduce": OperationCall(lambda: x.sum(1), x)}


def _embedding(sizes: Sizes, device: torch.device, dtype: torch.dtype) -> Calls:
    rows, width, vocabulary = sizes
    weight = _random(vocabulary, width, device=device, dtype=dtype, grad=True)
    chosen = torch.randint(vocabulary, (rows,), device=device)
    return _with_backward("embedding", lambda: F.embedding(chosen, weight), chosen, [weight])


def _recurrent(sizes: Sizes, device: torch.device, dtype: torch.dtype) -> Calls:
    steps, batch, inputs, hidden = sizes
    layer = torch.nn.LSTM(inputs, hidden, batch_first=True).to(device=device, dtype=dtype)
    if dtype == torch.float32:
        FlatParameters(list(layer.parameters()))  # the layout a step uses, which is not the fastest for libraries
    else:
        layer.flatten_parameters()  # casts of mixed precision leave the weights in the library's own layout
    x = _random(batch, steps, inputs, device=device, dtype=dtype)
    return _with_backward("recurrent", lambda: layer(x)[0], x, list(layer.parameters()))


def _attention(sizes: Sizes, device: torch.device, dtype: torch.dtype) -> Calls:
    heads, queries, keys, width, causal = sizes
    q = _random(1, heads, queries, width, device=device, dtype=dtype, grad=True)
    k, v = (_random(1, heads, keys, width, device=device, dtype=dtype, grad=True) for _ in range(2))
    forward = lambda: F.scaled_dot_product_attention(q, k, v, is_causal=bool(causal))  # noqa: E731
    return _with_backward("attention", forward, v, [q, k, v])


def _pointwise(kind: str, sizes: Sizes, device: torch.device, dtype: torch.dtype) -> Calls:
    aten = torch.ops.aten
    x, y = (_random(*sizes, device=device, dtype=dtype) for _ in range(2))
    call: Call
    fresh = y if kind.endswith("_backward") else x  # the gradient is the first argument
    match kind:
        case "add":
            call = lambda: x + y  # noqa: E731
        case "add_":
            call = lambda: x.add_(y, alpha=1e-3)  # noqa: E731
        case "mul":
            call = lambda: x * y  # noqa: E731
        case "copy":
            call = x.clone
        case "cast":
            single = x.float()
            call = lambda: single.to(torch.bfloat16)  # noqa: E731
        case "relu":
            call = x.relu
        case "relu_":
            call = x.relu_
        case "tanh":
            call = x.tanh
        case "sigmoid":
            call = x.sigmoid
        case "gelu":
            call = lambda: F.gelu(x)  # noqa: E731
        case "dropout":
            call = lambda: F.dropout(x, 0.5, training=True)  # noqa: E731
        case "threshold_backward":
            call = lambda: aten.threshold_backward(y, x, 0)  # noqa: E731
        case "tanh_backward":
            call = lambda: aten.tanh_backward(y, x)  # noqa: E731
        case "gelu_backward":
            call = lambda: aten.gelu_backward(y, x)  # noqa: E731
        case _:
            raise AssertionError(kind)
    return {kind: OperationCall(call, fresh)}


_IMAGE_MAKERS = {
    "convolution": _convolution,
    "batch_norm": _batch_norm,
    "max_pool": _max_pool,
    "average_pool": _average_pool,
}
_MAKERS = {
    "matmul": _matmul,
    "layer_norm": _layer_norm,
    "softmax": _softmax,
    "reduce": _reduce,
    "embedding": _embedding,
    "recurrent": _recurrent,
    "attention": _attention,
}
