"""The panels of the figure of what a saved run learned: those of its network, or how a classifier's answers differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from paceline.errors import InputError
from paceline.networks.learned import FIGURE_SAMPLES, HasFigure, Heatmap, Panel
from paceline.step.calling import call_network, scores_of
from paceline.step.feeder import first_batch, make_feeder
from paceline.step.order import Order
from paceline.step.placement import available_cores, cpu_settings_restored, dtype_of
from paceline.step.randomness import mix
from paceline.training.evaluate import restored

_FIGURE = 0xF16  # keeps a figure's random numbers apart from other uses of the same seed


@cpu_settings_restored()
def learned_by(path: Path, changes: Mapping[str, str | None], cache: Path | None = None) -> Sequence[Panel]:
    """Of the saved parameters of a run; drawn again, they are the same."""
    workload, dataset, network, device = restored(path, changes, cache)
    samples = min(len(dataset.test), FIGURE_SAMPLES)
    order = Order(len(dataset.test), samples, workload.seed, shuffle=False)
    feeder = make_feeder(dataset, order, device, dtype_of(workload), training=False, readers=available_cores())
    try:
        x, y = first_batch(feeder)
    finally:
        feeder.close()
    network.eval()
    with torch.random.fork_rng([device] if device.type == "cuda" else []), torch.no_grad():
        torch.manual_seed(mix(_FIGURE, workload.seed))
        if isinstance(network, HasFigure) and isinstance(x, Tensor):
            return network.learned(x, y)
        scores = scores_of(call_network(network, x))
    if not isinstance(scores, Tensor) or scores.dim() != 2 or y.dim() != 1 or y.is_floating_point():
        raise InputError(f"{workload.network} has no figure of what it learned: it defines none and does not classify")
    return [_confusion(scores, y, dataset.classes)]


def _confusion(scores: Tensor, labels: Tensor, classes: Sequence[str]) -> Heatmap:
    counts = torch.zeros(len(classes), len(classes))
    counts.index_put_((labels.cpu(), scores.argmax(1).cpu()), torch.ones(len(labels)), accumulate=True)
    shares = 100 * counts / counts.sum(1, keepdim=True).clamp(min=1)
    return Heatmap("Test samples of each class, %", shares, classes, classes, x="answer of the network", y="class")
