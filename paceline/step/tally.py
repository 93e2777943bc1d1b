"""Counts loss and accuracy over many steps without waiting for the device at each of them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

# Outputs are kept until there are enough of them to be worth an operation on all at once.
KEEP_STEPS = 64
KEEP_ELEMENTS = 1 << 22


@dataclass(frozen=True)
class Score:
    """Sums over `samples` predictions. Accuracy is undefined when nothing was classified."""

    loss_sum: float = 0.0
    samples: int = 0
    correct: int = 0
    correct_top: int = 0
    classified: int = 0

    @property
    def loss(self) -> float:
        return self.loss_sum / self.samples if self.samples else float("nan")

    @property
    def accuracy(self) -> float:
        return self.correct / self.classified if self.classified else float("nan")

    @property
    def top_accuracy(self) -> float:
        return self.correct_top / self.classified if self.classified else float("nan")

    def __add__(self, other: Score) -> Score:
        return Score(
            self.loss_sum + other.loss_sum,
            self.samples + other.samples,
            self.correct + other.correct,
            self.correct_top + other.correct_top,
            self.classified + other.classified,
        )


class Tally:
    def __init__(self, top: int) -> None:
        self.top = top
        self._losses: list[Tensor] = []
        self._sizes: list[int] = []
        self._outputs: list[Tensor] = []
        self._targets: list[Tensor] = []
        self._elements = 0
        self._sums: Tensor | None = None
        self._samples = 0
        self._classified = 0

    def add(self, loss: Tensor | None, output: Tensor | None, target: Tensor) -> None:
        """One step's results; the tensors must not be overwritten afterwards. No loss: cross entropy."""
        if self._sizes and (loss is None) == bool(self._losses):
            self._fold()  # a smaller last batch may be computed another way than those before it
        if loss is not None:
            self._losses.append(loss)
        self._sizes.append(len(target))
        if output is not None and not target.is_floating_point():
            self._outputs.append(output)
            self._targets.append(target)
            self._elements += output.numel()
        if len(self._sizes) >= KEEP_STEPS or self._elements >= KEEP_ELEMENTS:
            self._fold()

    def add_many(self, losses: Tensor | None, size: int, outputs: Tensor | None, targets: Tensor) -> None:
        """Several steps of `size` samples at once, already joined."""
        self._fold()
        loss_sum = losses.double().sum() * size if losses is not None else _cross_entropy(outputs, targets)
        self._accumulate(loss_sum, outputs, targets)
        self._samples += len(targets)

    def _fold(self) -> None:
        if not self._sizes:
            return
        outputs = torch.cat(self._outputs) if self._outputs else None
        targets = torch.cat(self._targets) if self._targets else None
        if self._losses:
            losses = torch.stack(self._losses).double()
            loss_sum = (losses * torch.tensor(self._sizes, dtype=torch.float64).to(losses.device)).sum()
        else:
            loss_sum = _cross_entropy(outputs, targets)
        self._accumulate(loss_sum, outputs, targets)
        self._samples += sum(self._sizes)
        self._losses, self._sizes, self._outputs, self._targets, self._elements = [], [], [], [], 0

    def _accumulate(self, loss_sum: Tensor, outputs: Tensor | None, targets: Tensor | None) -> None:
        if outputs is None or targets is None:
            sums = torch.stack([loss_sum, torch.zeros_like(loss_sum), torch.zeros_like(loss_sum)])
        else:
            rank = rank_of_target(outputs.flatten(0, -2), targets.flatten())
            self._classified += len(rank)
            sums = torch.stack([loss_sum, (rank < 1).sum().double(), (rank < self.top).sum().double()])
        self._sums = sums if self._sums is None else self._sums + sums

    def read(self) -> Score:
        """The sums so far; waits for the device."""
        self._fold()
        if self._sums is None:
            return Score()
        loss_sum, correct, correct_top = self._sums.tolist()
        return Score(loss_sum, self._samples, round(correct), round(correct_top), self._classified)


def _cross_entropy(outputs: Tensor | None, targets: Tensor | None) -> Tensor:
    """Summed over the samples. Log-probabilities are as good as raw outputs: normalising them changes nothing."""
    assert outputs is not None and targets is not None
    return F.cross_entropy(outputs, targets, reduction="sum").double()


def rank_of_target(outputs: Tensor, targets: Tensor) -> Tensor:
    """How many classes are not below the right one. Ties and NaN count against the prediction."""
    own = outputs.gather(1, targets.unsqueeze(1).long())
    return (~(outputs < own)).sum(1) - 1
