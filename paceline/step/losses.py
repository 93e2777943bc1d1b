"""The losses a workload can name, on a network's raw outputs and integer labels or real targets."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn
from torch.nn import functional as F

from paceline.errors import NetworkError

Loss = Callable[[Tensor, Tensor], Tensor]


def cross_entropy(output: Tensor, target: Tensor) -> Tensor:
    _check_scores(output)
    if target.is_floating_point() and output.shape[class_dimension(output)] == 1:
        raise NetworkError(
            f"the network has one output (shape {list(output.shape)}), and the cross entropy of one class is always 0; "
            "for yes or no use `loss='torch.nn:BCEWithLogitsLoss'`, for targets that are numbers use `loss='squared'`"
        )
    return F.cross_entropy(*_rows(output, target))


def binary_cross_entropy(output: Tensor, target: Tensor) -> Tensor:
    """One yes-or-no question per class."""
    output, target = _rows(output, target)
    return F.binary_cross_entropy_with_logits(output, _as_numbers(output, target))


def squared(output: Tensor, target: Tensor) -> Tensor:
    output, target = _rows(output, target)
    return F.mse_loss(output, _as_numbers(output, target))


def hinge(output: Tensor, target: Tensor) -> Tensor:
    """The multi-class hinge: how far wrong classes come within one of the right one."""
    _check_scores(output)
    return F.multi_margin_loss(*_rows(output, target))


LOSSES: dict[str, Loss] = {
    "cross-entropy": cross_entropy,
    "binary-cross-entropy": binary_cross_entropy,
    "squared": squared,
    "hinge": hinge,
}


def class_dimension(output: Tensor) -> int:
    """Of scores: the second one for images, as in PyTorch's cross entropy; the last one for samples and sequences."""
    return 1 if output.dim() > 3 else output.dim() - 1


def _check_scores(output: Tensor) -> None:
    """PyTorch would treat the outputs of a batch as the classes of one sample."""
    if output.dim() < 2:
        raise NetworkError(
            f"the network's output has the shape {list(output.shape)}, and this loss needs a score per class; for one "
            "number per sample use `loss='squared'` or `loss='torch.nn:BCEWithLogitsLoss'`"
        )


def _rows(output: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Sequences become rows: a prediction for each character counts as a sample."""
    if output.dim() == 3 and target.dim() == 2 and not target.is_floating_point():
        return output.flatten(0, 1), target.flatten()
    return output, target


def _as_numbers(output: Tensor, target: Tensor) -> Tensor:
    if target.is_floating_point():
        return target.to(output.dtype).view_as(output)
    return F.one_hot(target, output.shape[-1]).to(output.dtype)


def total_loss(loss: Loss, output: Tensor | tuple[Tensor, ...], target: Tensor, auxiliary_weight: float) -> Tensor:
    """The loss of the main output plus the weighted losses of auxiliary ones, as GoogLeNet has them."""
    if isinstance(output, Tensor):
        return loss(output, target)
    main, *others = output
    total = loss(main, target)
    for other in others:
        total = total + auxiliary_weight * loss(other, target)
    return total


def auxiliary_weight(network: nn.Module) -> float:
    return float(getattr(network, "auxiliary_weight", 0.3))
