"""A run that ends in the middle, and what it left."""

from __future__ import annotations

from pathlib import Path

import torch

from paceline.training.checkpoint import load_checkpoint
from paceline.training.watcher import Silent


class Death(Exception):
    pass


class DiesAfter(Silent):
    """A watcher that ends the run after some looks at its progress, with nothing tidied up."""

    def __init__(self, looks: int) -> None:
        self.looks = looks

    def advanced(self, progress: object) -> None:
        self.looks -= 1
        if self.looks < 0:
            raise Death


def parameters(directory: Path) -> dict[str, torch.Tensor]:
    return load_checkpoint(directory).parameters


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)
