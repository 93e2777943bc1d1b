"""Counts on which device the operations of one training step run."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from paceline.step.feeder import first_batch
from paceline.step.optimizers import torch_optimizer
from paceline.step.phase import phases_of
from paceline.step.step import Parts


class _Counting(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        devices = [leaf.device for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        devices = devices or [leaf.device for leaf in tree_leaves(args) if isinstance(leaf, torch.Tensor)]
        if devices:
            self.counts[f"{devices[0].type}:{devices[0].index or 0}"] += 1
        return result


def count_operations(parts: Parts) -> dict[str, int]:
    """Operations by device of one plain step, on a copy of the network so that nothing changes."""
    network = copy.deepcopy(parts.network)
    phases = phases_of(parts.workload, network)
    batch = first_batch(parts.feeder)
    state = parts.generator.get_state()
    with _Counting() as counting:
        for phase in phases:
            outcome = phase.gradient(batch, parts.generator)
            for parameter, gradient in zip(phase.parameters, outcome.gradients, strict=True):
                parameter.grad = gradient
            torch_optimizer(phase.rule, list(phase.parameters)).step()
    parts.generator.set_state(state)
    return dict(counting.counts)
