"""One operation of a network: what it does, how large, for which layer; read from a call without running it."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from torch import Tensor

from paceline.cost.families import FAMILIES, Sizes


@dataclass(frozen=True)
class Operation:
    family: str
    sizes: Sizes
    row: str
    """The layer it belongs to, by the name measurements use."""
    direction: str
    """`forward` or `backward`."""
    name: str
    """PyTorch's name for it."""
    known: bool = True
    """Whether its own family is known; else it is taken for a plain pass over its elements."""

    @property
    def flops(self) -> float:
        return FAMILIES[self.family].work_of(self.sizes)[0]

    @property
    def elements(self) -> float:
        """Read and written."""
        return FAMILIES[self.family].work_of(self.sizes)[1]


# Nothing is computed by these: they look at memory in another way, or only reserve it.
FREE = frozenset(
    [
        "view",
        "t",
        "transpose",
        "permute",
        "expand",
        "detach",
        "unbind",
        "select",
        "slice",
        "unsqueeze",
        "squeeze",
        "as_strided",
        "alias",
        "split",
        "split_with_sizes",
        "chunk",
        "narrow",
        "_unsafe_view",
        "reshape",
        "_reshape_alias",
        "empty",
        "empty_like",
        "empty_strided",
        "new_empty",
        "device",
        "unfold",
        "diagonal",
        "real",
        "imag",
        "view_as_real",
        "lift_fresh",
        "is_same_size",
        "sym_size",
        "resize_",
        "set_",
        "new_empty_strided",
    ]
)
_LIGHT = frozenset(
    [
        "add",
        "sub",
        "rsub",
        "mul",
        "div",
        "neg",
        "abs",
        "sign",
        "clamp",
        "clamp_min",
        "clamp_max",
        "maximum",
        "minimum",
        "where",
        "masked_fill",
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
        "logical_not",
        "logical_and",
        "bitwise_and",
        "bitwise_not",
        "threshold",
        "leaky_relu",
        "leaky_relu_backward",
        "hardtanh",
        "hardtanh_backward",
        "addcmul",
        "addcdiv",
        "lerp",
        "square",
        "reciprocal",
        "ones_like",
        "zeros_like",
        "zeros",
        "ones",
        "fill",
        "zero",
        "full",
        "full_like",
        "scalar_tensor",
        "arange",
        "nll_loss_forward",
        "nll_loss_backward",
        "nll_loss2d_forward",
        "nll_loss2d_backward",
        "mse_loss",
        "mse_loss_backward",
        "sigmoid_backward",
        "floor",
        "ceil",
        "round",
        "native_dropout_backward",
        "multi_margin_loss",
        "multi_margin_loss_backward",
    ]
)
_HEAVY = frozenset(
    [
        "exp",
        "log",
        "log1p",
        "expm1",
        "sqrt",
        "rsqrt",
        "pow",
        "sin",
        "cos",
        "erf",
        "softplus",
        "silu",
        "mish",
        "hardswish",
        "hardsigmoid",
        "elu",
        "binary_cross_entropy_with_logits",
    ]
)
_HEAVY_BACKWARD = frozenset(
    [
        "silu_backward",
        "mish_backward",
        "hardswish_backward",
        "hardsigmoid_backward",
        "elu_backward",
        "softplus_backward",
    ]
)
_COPIES = frozenset(
    [
        "clone",
        "copy",
        "cat",
        "stack",
        "constant_pad_nd",
        "slice_backward",
        "select_backward",
        "slice_scatter",
        "repeat",
        "flip",
        "roll",
        "index_select",
        "gather",
        "_to_copy",
        "new_zeros",
        "select_scatter",
        "contiguous",
    ]
)
_SAMPLED_POINTWISE = frozenset(
    ["relu", "tanh", "sigmoid", "gelu", "threshold_backward", "tanh_backward", "gelu_backward"]
)


def understood(name: str, arguments: tuple[Any, ...], output: Any) -> tuple[str, Sizes, bool] | None:
    """Family, sizes, and whether they are its own; None for what takes no time."""
    plain = name.rstrip("_") if name not in FAMILIES else name
    if name in FREE or plain in FREE:
        return None
    tensors = [t for t in _leaves(output) if isinstance(t, Tensor)]
    elements = max([t.numel() for t in tensors], default=0)
    read = [t for t in _leaves(arguments) if isinstance(t, Tensor)]
    if not elements and not read:
        return None
    elements = max(elements, 1)
    special = _SPECIAL.get(plain)
    if special is not None:
        found = special(arguments, output)
        if found is not None:
            return (*found, True)
    if name == "relu_":
        return "relu_", (elements,), True
    if plain in _SAMPLED_POINTWISE:
        return plain, (elements,), True
    if plain in _LIGHT:
        return "add", (elements,), True
    if plain in _HEAVY:
        return "tanh", (elements,), True
    if plain in _HEAVY_BACKWARD:
        return "gelu_backward", (elements,), True
    if plain in _COPIES:
        return "copy", (elements,), True
    if plain in ("bernoulli", "native_dropout", "uniform", "normal", "rand_like", "randn"):
        return "dropout", (elements,), True
    return "add", (max([elements, *(t.numel() for t in read)]),), False


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, list | tuple):
        return [leaf for item in value for leaf in _leaves(item)]
    return [value]


Found = tuple[str, Sizes] | None


def _mm(arguments: tuple[Any, ...], output: Any) -> Found:
    a, b = arguments[0], arguments[1]
    return "matmul", (1, a.shape[0], b.shape[1], a.shape[1], _layout(a, b), 0)


def _addmm(arguments: tuple[Any, ...], output: Any) -> Found:
    _, a, b = arguments[:3]
    return "matmul", (1, a.shape[0], b.shape[1], a.shape[1], _layout(a, b), 1)


def _bmm(arguments: tuple[Any, ...], output: Any) -> Found:
    a, b = [t for t in arguments if isinstance(t, Tensor)][-2:]
    return "matmul", (a.shape[0], a.shape[1], b.shape[2], a.shape[2], _layout(a, b), 0)


def _layout(a: Tensor, b: Tensor) -> int:
    """0: the second is transposed, as in a forward pass; 1: neither; 2: the first, as for a weight's gradient."""
    if a.shape[-2] > 1 and a.stride(-1) != 1:
        return 2
    return 0 if b.shape[-1] > 1 and b.stride(-1) != 1 else 1


def _convolved(x: Tensor, weight: Tensor, y: Tensor, groups: int, bias: bool) -> Sizes | None:
    if x.dim() not in (3, 4):
        return None
    h, w = (1, x.shape[2]) if x.dim() == 3 else x.shape[2:]
    p, q = (1, y.shape[2]) if y.dim() == 3 else y.shape[2:]
    r, s = (1, weight.shape[2]) if weight.dim() == 3 else weight.shape[2:]
    return (x.shape[0], x.shape[1], h, w, y.shape[1], r, s, p, q, groups, int(bias))


def _convolution(arguments: tuple[Any, ...], output: Any) -> Found:
    x, weight, bias = arguments[:3]
    transposed, groups = arguments[6], arguments[8]
    # A transposed one does what the other's gradient for its input does: the same product.
    x, y = (output, x) if transposed else (x, output)
    sizes = _convolved(x, weight, y, groups, bias is not None)
    return None if sizes is None else ("convolution", sizes)


def _convolution_backward(arguments: tuple[Any, ...], output: Any) -> Found:
    gradient, x, weight = arguments[:3]
    transposed, groups, mask = arguments[7], arguments[9], arguments[10]
    x, y = (gradient, x) if transposed else (x, gradient)
    sizes = _convolved(x, weight, y, groups, bool(mask[2]))
    if sizes is None:
        return None
    return ("convolution_backward" if mask[0] and mask[1] else "convolution_backward_weight"), sizes


def _normed(family: str, place: int) -> Any:
    def found(arguments: tuple[Any, ...], output: Any) -> Found:
        x = arguments[place]
        n, c = x.shape[:2]
        return family, (n, c, max(1, x.numel() // max(1, n * c)))

    return found


def _layer_normed(family: str, place: int) -> Any:
    def found(arguments: tuple[Any, ...], output: Any) -> Found:
        x, shape = arguments[place], arguments[place + 1]
        width = prod(shape)
        return family, (x.numel() // max(1, width), width)

    return found


def _pooled(family: str, backward: bool) -> Any:
    def found(arguments: tuple[Any, ...], output: Any) -> Found:
        x = arguments[1] if backward else arguments[0]
        y = arguments[0] if backward else _leaves(output)[0]
        if x.dim() != 4:
            return None
        window = arguments[2 if backward else 1] if "adaptive" not in family else [0]
        size = prod(window) if len(window) > 1 else window[0] ** 2
        (h, w), (p, q) = x.shape[2:], y.shape[2:]
        return family, (x.shape[0] * x.shape[1], h, w, p, q, max(1, size))

    return found


def _adaptive(backward: bool) -> Any:
    def found(arguments: tuple[Any, ...], output: Any) -> Found:
        x = arguments[1] if backward else arguments[0]
        y = arguments[0] if backward else output
        if x.dim() != 4:
            return None
        (h, w), (p, q) = x.shape[2:], y.shape[2:]
        window = max(1, h // max(p, 1)) * max(1, w // max(q, 1))
        return "average_pool" + "_backward" * backward, (x.shape[0] * x.shape[1], h, w, p, q, window)

    return found


def _rows(family: str, place: int) -> Any:
    def found(arguments: tuple[Any, ...], output: Any) -> Found:
        x = arguments[place]
        width = x.shape[-1] if x.dim() else 1
        return family, (x.numel() // max(1, width), width)

    return found


def _reduced(arguments: tuple[Any, ...], output: Any) -> Found:
    x = arguments[0]
    dims = arguments[1] if len(arguments) > 1 and isinstance(arguments[1], list | tuple) else list(range(x.dim()))
    dims = sorted(d % max(1, x.dim()) for d in dims) or list(range(x.dim()))
    if not dims:
        return "reduce", (1, 1, 1)
    outer, inner = prod(x.shape[: dims[0]]), prod(x.shape[dims[-1] + 1 :])
    return "reduce", (outer, max(1, x.numel() // max(1, outer * inner)), inner)


def _embedding(arguments: tuple[Any, ...], output: Any) -> Found:
    weight = arguments[0]
    return "embedding", (output.numel() // weight.shape[1], weight.shape[1], weight.shape[0])


def _embedding_backward(arguments: tuple[Any, ...], output: Any) -> Found:
    width = output.shape[-1]
    return "embedding_backward", (arguments[0].numel() // width, width, output.shape[0])


def _recurrent(arguments: tuple[Any, ...], output: Any) -> Found:
    x, hidden = arguments[0], arguments[5]
    return "recurrent", (x.shape[0], x.shape[1], x.shape[2], hidden.shape[-1])


def _recurrent_backward(arguments: tuple[Any, ...], output: Any) -> Found:
    x, hidden = arguments[0], arguments[5]
    return "recurrent_backward", (x.shape[0], x.shape[1], x.shape[2], hidden.shape[-1])


def _attention(family: str, place: int) -> Any:
    def found(arguments: tuple[Any, ...], output: Any) -> Found:
        query, key = arguments[place], arguments[place + 1]
        return family, (query.shape[0] * query.shape[1], query.shape[2], key.shape[2], query.shape[3])

    return found


_SPECIAL = {
    "mm": _mm, "addmm": _addmm, "bmm": _bmm, "baddbmm": _bmm,
    "convolution": _convolution, "convolution_backward": _convolution_backward,
    "native_batch_norm": _normed("batch_norm", 0), "cudnn_batch_norm": _normed("batch_norm", 0),
    "_native_batch_norm_legit": _normed("batch_norm", 0), "_batch_norm_with_update": _normed("batch_norm", 0),
    "native_batch_norm_backward": _normed("batch_norm_backward", 1),
    "cudnn_batch_norm_backward": _normed("batch_norm_backward", 0),
    "native_group_norm": _normed("batch_norm", 0), "native_group_norm_backward": _normed("batch_norm_backward", 1),
    "native_layer_norm": _layer_normed("layer_norm", 0),
    "native_layer_norm_backward": _layer_normed("layer_norm_backward", 1),
    "max_pool2d_with_indices": _pooled("max_pool", False),
    "max_pool2d_with_indices_backward": _pooled("max_pool_backward", True),
    "avg_pool2d": _pooled("average_pool", False), "avg_pool2d_backward": _pooled("average_pool_backward", True),
    "_adaptive_avg_pool2d": _adaptive(False), "_adaptive_avg_pool2d_backward": _adaptive(True),
    "_log_softmax": _rows("softmax", 0), "_softmax": _rows("softmax", 0),
    "_log_softmax_backward_data": _rows("softmax_backward", 0), "_softmax_backward_data": _rows("softmax_backward", 0),
    "sum": _reduced, "mean": _reduced, "amax": _reduced, "max": _reduced, "argmax": _reduced, "var_mean": _reduced,
    "embedding": _embedding, "embedding_dense_backward": _embedding_backward,
    "mkldnn_rnn_layer": _recurrent, "mkldnn_rnn_layer_backward": _recurrent_backward,
    "_scaled_dot_product_flash_attention_for_cpu": _attention("attention", 0),
    "_scaled_dot_product_flash_attention_for_cpu_backward": _attention("attention_backward", 1),
}  # fmt: skip
