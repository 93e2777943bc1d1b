"""Vectors and instructions for tests of the server's updates."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline.step.optimizers import Rule
from paceline.strategy.gradient_mean import GroupContribution, Payload
from paceline.strategy.instructions import Apply, Compute, Contribution
from paceline.strategy.layout import Layout, PhaseLayout
from paceline.strategy.strategy import Strategy
from paceline.strategy.updater import Updater


def layout(*sizes: int, rule: Rule | None = None, buffers: int = 0, epochs: int = 1, batches: int = 100) -> Layout:
    rule = rule or Rule("sgd", 0.1)
    return Layout(
        tuple(PhaseLayout(rule, ((f"vector {i}", (size,)),)) for i, size in enumerate(sizes)),
        buffers,
        batches,
        epochs,
        "float32",
    )


def vector(size: int, seed: int) -> Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed))


def order(*groups: int, update: int = 1, epoch: int = 0, closed: int = 0, staleness: int = 0) -> Apply:
    """An update from groups with so many members each."""
    contributions, worker = [], 0
    for number, members in enumerate(groups):
        tasks = tuple(Compute(worker + i, 1, epoch, (), ()) for i in range(members))
        contributions.append(Contribution(number, tasks, staleness))
        worker += members
    return Apply(update, tuple(contributions), epoch, closed)


def applied(
    strategy: Strategy,
    where: Layout,
    old: Tensor,
    *gradients: Tensor,
    fetched: Tensor | None = None,
    samples: int = 1,
    **how: int,
) -> Tensor:
    """The parameters after one update with a single group's gradients."""
    updater = Updater(strategy, where, workers=len(gradients))
    kept, state, new = updater.initial_correction_state(), updater.initial_state(), old.clone()
    given = GroupContribution([Payload(g, samples, 1) for g in gradients], fetched, kept, kept)
    updater.apply(order(len(gradients), **how), [given], old, new, state, state)
    return new
