"""The family and sizes of a traced call, by PyTorch's name and its arguments."""

from __future__ import annotations

from math import prod
from typing import Any

from torch import Tensor

from paceline.cost.families import FAMILIES, Sizes
from paceline.cost.op_aliases import ALIASES, FREE
from paceline.cost.operation import leaves_in, tensors_in
from paceline.step.layout import has_channels_last


def classify_op(name: str, arguments: tuple[Any, ...], output: Any) -> tuple[str, Sizes, bool] | None:
    """Family, sizes, and whether the family is known; None for operations that take no time."""
    plain = name.rstrip("_") if name not in FAMILIES else name  # `add_` counts as `add`; `relu_` is a family of its own
    if name in FREE or plain in FREE:
        return None
    written, read = tensors_in(output), tensors_in(arguments)
    if not written and not read:
        return None
    if name.startswith(("_foreach_", "_fused_")) and name not in _SPECIAL:
        return _of_lists(plain, arguments)
    special = _SPECIAL.get(plain)
    found = special(arguments, output) if special is not None else None
    if found is not None:
        return (*found, True)
    if plain in ALIASES:
        return ALIASES[plain], (max([1, *(t.numel() for t in written)]),), True
    return "add", (max([1, *(t.numel() for t in (*written, *read))]),), False


def _of_lists(name: str, arguments: tuple[Any, ...]) -> tuple[str, Sizes, bool]:
    """An operation on lists of tensors, as optimizers run: one pass over all their elements, or a fused update."""
    like = ALIASES.get(name.removeprefix("_foreach_"))
    elements = sum(tensor.numel() for tensor in tensors_in(arguments[0]))
    passes = sum(tensor.numel() for tensor in tensors_in(arguments)) / max(1, elements)
    if name.startswith(
        "_fused_"
    ):  # reads every list, and writes all but the gradients: three elements are one of `add_`
        return "add_", (max(1, round(elements * (2 * passes - 1) / 3)),), True
    return like or "add", (max(1, elements),), like is not None


Found = tuple[str, Sizes] | None


def _mm(arguments: tuple[Any, ...], output: Any) -> Found:
    a, b = arguments[0], arguments[1]
    return "matmul", (1, a.shape[0], b.shape[1], a.shape[1], _layout(a, b), 0)


def _addmm(arguments: tuple[Any, ...], output: Any) -> Found:
    _, a, b = arguments[:3]
    return "matmul", (1, a.shape[0], b.shape[1], a.shape[1], _layout(a, b), 1)


def _mv(arguments: tuple[Any, ...], output: Any) -> Found:
    a = next(t for t in tensors_in(arguments) if t.dim() == 2)
    return "matmul", (1, a.shape[0], 1, a.shape[1], 2 if a.shape[0] > 1 and a.stride(-1) != 1 else 1, 0)


def _dot(arguments: tuple[Any, ...], output: Any) -> Found:
    return "matmul", (1, 1, 1, arguments[0].numel(), 1, 0)


def _bmm(arguments: tuple[Any, ...], output: Any) -> Found:
    a, b = tensors_in(arguments)[-2:]
    return "matmul", (a.shape[0], a.shape[1], b.shape[2], a.shape[2], _layout(a, b), 0)


def _layout(a: Tensor, b: Tensor) -> int:
    """0: second operand transposed, as in a forward pass; 1: neither; 2: first, as for a weight's gradient."""
    if a.shape[-2] > 1 and a.stride(-1) != 1:
        return 2
    return 0 if b.shape[-1] > 1 and b.stride(-1) != 1 else 1


def _convolved(x: Tensor, weight: Tensor, y: Tensor, groups: int, bias: bool) -> Sizes | None:
    """1D and 3D convolutions are mapped to a 2D convolution with the same arithmetic."""
    if x.dim() not in (3, 4, 5):
        return None
    (h, w), (p, q), (r, s) = _plane(x), _plane(y), _plane(weight)
    return (x.shape[0], x.shape[1], h, w, y.shape[1], r, s, p, q, groups, int(bias))


def _plane(x: Tensor) -> tuple[int, int]:
    """Height and width of the spatial dimensions; the height is 1 in 1D, and includes the depth in 3D."""
    *upper, width = x.shape[2:]
    return prod(upper), width


def _convolution(arguments: tuple[Any, ...], output: Any) -> Found:
    x, weight, bias = arguments[:3]
    transposed, groups = arguments[6], arguments[8]
    # A transposed convolution computes the same product as the input gradient of a normal one.
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
        y = arguments[0] if backward else leaves_in(output)[0]
        if x.dim() not in (4, 5):
            return None
        (h, w), (p, q) = _plane(x), _plane(y)
        window = arguments[2 if backward else 1]
        size = prod(window) if len(window) > 1 else window[0] ** (x.dim() - 2)
        return family, (x.shape[0] * x.shape[1], h, w, p, q, max(1, size))

    return found


def _adaptive(family: str, backward: bool) -> Any:
    """Adaptive pooling gives the output size instead of the window."""

    def found(arguments: tuple[Any, ...], output: Any) -> Found:
        x = arguments[1] if backward else arguments[0]
        y = arguments[0] if backward else leaves_in(output)[0]
        if x.dim() != 4:
            return None
        (h, w), (p, q) = _plane(x), _plane(y)
        return family, (x.shape[0] * x.shape[1], h, w, p, q, max(1, h // max(p, 1)) * max(1, w // max(q, 1)))

    return found


def _rows(family: str, place: int) -> Any:
    def found(arguments: tuple[Any, ...], output: Any) -> Found:
        x = arguments[place]
        width = x.shape[-1] if x.dim() else 1
        return family, (x.numel() // max(1, width), width)

    return found


def _reduced(arguments: tuple[Any, ...], output: Any) -> Found:
    x = arguments[0]
    given = arguments[1] if len(arguments) > 1 else None
    chosen = [given] if type(given) is int else given if isinstance(given, list | tuple) else []
    dims = sorted(d % max(1, x.dim()) for d in chosen) or list(range(x.dim()))
    if not x.dim():
        return "reduce", (1, 1, 1)
    if dims == [2, 3] and has_channels_last(x):  # reads the channels of a pixel side by side
        return "reduce", (x.shape[0], x.shape[2] * x.shape[3], x.shape[1])
    outer, inner = prod(x.shape[: dims[0]]), prod(x.shape[dims[-1] + 1 :])
    return "reduce", (outer, max(1, x.numel() // max(1, outer * inner)), inner)


def _embedding(arguments: tuple[Any, ...], output: Any) -> Found:
    weight = arguments[0]
    return "embedding", (output.numel() // weight.shape[1], weight.shape[1], weight.shape[0])


def _embedding_backward(arguments: tuple[Any, ...], output: Any) -> Found:
    width = output.shape[-1]
    return "embedding_backward", (arguments[0].numel() // width, width, output.shape[0])


def _recurrent(family: str) -> Any:
    def found(arguments: tuple[Any, ...], output: Any) -> Found:
        x, hidden = arguments[0], arguments[5]
        return family, (x.shape[0], x.shape[1], x.shape[2], hidden.shape[-1])

    return found


def _attention(family: str, query: int, causal: int) -> Any:
    """`query` and `causal`: positions of these arguments; key and value follow the query."""

    def found(arguments: tuple[Any, ...], output: Any) -> Found:
        q, k = arguments[query], arguments[query + 1]
        is_causal = len(arguments) > causal and bool(arguments[causal])
        return family, (q.shape[0] * q.shape[1], q.shape[2], k.shape[2], q.shape[3], int(is_causal))

    return found


def _cast(arguments: tuple[Any, ...], output: Any) -> Found:
    x = arguments[0]
    changed = x.dtype != output.dtype and x.is_floating_point() and output.is_floating_point()
    return ("cast", (max(1, output.numel()),)) if changed else None


_SPECIAL = {
    "mm": _mm, "addmm": _addmm, "mv": _mv, "addmv": _mv, "dot": _dot, "bmm": _bmm, "baddbmm": _bmm,
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
    "max_pool3d_with_indices": _pooled("max_pool", False),
    "max_pool3d_with_indices_backward": _pooled("max_pool_backward", True),
    "avg_pool3d": _pooled("average_pool", False), "avg_pool3d_backward": _pooled("average_pool_backward", True),
    "_adaptive_avg_pool2d": _adaptive("average_pool", False),
    "_adaptive_avg_pool2d_backward": _adaptive("average_pool_backward", True),
    "adaptive_max_pool2d": _adaptive("max_pool", False),
    "adaptive_max_pool2d_backward": _adaptive("max_pool_backward", True),
    "_log_softmax": _rows("softmax", 0), "_softmax": _rows("softmax", 0), "_safe_softmax": _rows("softmax", 0),
    "_log_softmax_backward_data": _rows("softmax_backward", 0), "_softmax_backward_data": _rows("softmax_backward", 0),
    "sum": _reduced, "mean": _reduced, "prod": _reduced, "any": _reduced, "all": _reduced, "logsumexp": _reduced,
    "amax": _reduced, "amin": _reduced, "max": _reduced, "min": _reduced, "argmax": _reduced, "argmin": _reduced,
    "var": _reduced, "std": _reduced, "var_mean": _reduced,
    "embedding": _embedding, "embedding_dense_backward": _embedding_backward,
    "mkldnn_rnn_layer": _recurrent("recurrent"), "mkldnn_rnn_layer_backward": _recurrent("recurrent_backward"),
    "_fused_rms_norm": _layer_normed("layer_norm", 0),
    "_fused_rms_norm_backward": _layer_normed("layer_norm_backward", 1),
    "_to_copy": _cast,
    "_scaled_dot_product_flash_attention_for_cpu": _attention("attention", 0, 4),
    "_scaled_dot_product_flash_attention": _attention("attention", 0, 4),
    "_scaled_dot_product_efficient_attention": _attention("attention", 0, 6),
    "_scaled_dot_product_cudnn_attention": _attention("attention", 0, 6),
    "_scaled_dot_product_flash_attention_for_cpu_backward": _attention("attention_backward", 1, 7),
    "_scaled_dot_product_flash_attention_backward": _attention("attention_backward", 1, 11),
    "_scaled_dot_product_efficient_attention_backward": _attention("attention_backward", 1, 11),
    "_scaled_dot_product_cudnn_attention_backward": _attention("attention_backward", 1, 14),
}  # fmt: skip
