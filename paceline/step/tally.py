"""Counts loss and accuracy over many steps without waiting for the device at each of them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

# Outputs are kept until there are enough of them to be worth an operation on all at once.
KEEP_STEPS = 256
KEEP_ELEMENTS = 1 << 22


@dataclass(frozen=True)
class Score:
    """Sums over `samples` predictions. Accuracy is undefined when nothing was classified."""

    loss_sum: float = 0.0
    samples: int = 0
    correct: int = 0
    correct_top: int = 0
    classified: int = 0
    metric: float = math.nan
    """The user's own, of all samples at once; it is not added up."""

    @property
    def loss(self) -> float:
        return self.loss_sum / self.samples if self.samples else math.nan

    @property
    def accuracy(self) -> float:
        return self.correct / self.classified if self.classified else math.nan

    @property
    def top_accuracy(self) -> float:
        return self.correct_top / self.classified if self.classified else math.nan

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
        """One step's results; the tensors must not be overwritten afterwards.

        Without a loss the output holds log-probabilities, and the loss is their cross entropy. An output of integers
        holds the ranks of the targets.
        """
        if self._sizes and ((loss is None) == bool(self._losses) or _unlike(output, self._outputs)):
            self._fold()  # a smaller last batch may be computed another way than those before it
        if loss is not None:
            self._losses.append(loss)
        self._sizes.append(target.shape[0])
        if output is not None and not target.is_floating_point():
            self._outputs.append(output)
            self._targets.append(target)
            self._elements += output.numel()
        if len(self._sizes) >= KEEP_STEPS or self._elements >= KEEP_ELEMENTS:
            self._fold()

    def add_many(self, losses: Tensor | None, size: int, outputs: Tensor | None, targets: Tensor) -> None:
        """Several steps of `size` samples at once, already joined."""
        self._fold()
        labelled = None if targets.is_floating_point() else outputs
        self._accumulate(losses.double().sum() * size if losses is not None else None, labelled, targets)
        self._samples += len(targets)

    def add_score(self, score: Score) -> None:
        """Sums that were made elsewhere."""
        sums = torch.tensor([score.loss_sum, score.correct, score.correct_top], dtype=torch.float64)
        self._sums = sums if self._sums is None else self._sums + sums
        self._samples += score.samples
        self._classified += score.classified

    def _fold(self) -> None:
        if not self._sizes:
            return
        loss_sum = None
        if self._losses:
            losses = torch.stack(self._losses).double()
            loss_sum = (losses * torch.tensor(self._sizes, dtype=torch.float64).to(losses.device)).sum()
        outputs = torch.cat(self._outputs) if self._outputs else None
        self._accumulate(loss_sum, outputs, torch.cat(self._targets) if self._targets else None)
        self._samples += sum(self._sizes)
        self._losses, self._sizes, self._outputs, self._targets, self._elements = [], [], [], [], 0

    def _accumulate(self, loss_sum: Tensor | None, outputs: Tensor | None, targets: Tensor | None) -> None:
        if outputs is None or targets is None:
            assert loss_sum is not None
            sums = torch.stack([loss_sum, torch.zeros_like(loss_sum), torch.zeros_like(loss_sum)])
        else:
            if outputs.is_floating_point():
                outputs, targets = outputs.flatten(0, -2), targets.flatten()
                own = outputs.gather(1, targets.unsqueeze(1).long())
                rank = rank_among(outputs, own)
                loss_sum = -own.double().sum() if loss_sum is None else loss_sum
            else:
                rank = outputs.flatten()
            assert loss_sum is not None, "ranks come with a loss"
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


def ranks_of(outputs: Tensor, targets: Tensor) -> Tensor:
    """The rank of each target among the scores of its row, in the shape of the targets."""
    rows = outputs.flatten(0, -2)
    return rank_among(rows, rows.gather(1, targets.reshape(-1, 1).long())).view(targets.shape)


def _unlike(output: Tensor | None, kept: list[Tensor]) -> bool:
    """Whether one has scores and the others have ranks."""
    return output is not None and bool(kept) and output.is_floating_point() != kept[-1].is_floating_point()


def rank_among(outputs: Tensor, own: Tensor) -> Tensor:
    """How many classes are not below the right one. Ties and NaN count against the prediction."""
    return (~(outputs < own)).sum(1, dtype=torch.int32) - 1
