"""Workers that agree share their parameters; what nobody needs is let go."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest
import torch

from paceline.simulation.virtual_driver import VirtualDriver
from paceline.simulation.virtual_store import VirtualStore
from paceline.strategy.presets import find_strategy
from tests.contract.small_training import GAMMA, parts


class Calling:
    """An observer that only looks now and then."""

    def __init__(self, advanced: Callable[[], None]) -> None:
        self.advanced = advanced

    def epoch_done(self, epoch: int) -> None:
        pass

    def updated(self, update: int) -> None:
        pass


def most_snapshots(strategy, workers: int) -> int:
    """How many different versions were alive at once: those that workers hold, and the current one."""
    gradients = VirtualStore(parts(batch=4), strategy, workers)
    most = 0

    def count() -> None:
        nonlocal most
        held = {id(tensor) for mine in gradients.workers.values() for _, tensor in mine.held.values()}
        kept = {id(m.state.parameters) for m in gradients.workers.values() if m.state.parameters is not None}
        most = max(most, len(held | kept | {id(gradients.current)}))

    batches = parts(batch=4).updates_per_epoch
    VirtualDriver(strategy, workers, GAMMA, batches=batches, gradients=gradients, observer=Calling(count)).run()
    return most


@pytest.mark.parametrize("workers", [4, 32])
def test_synchronous_workers_share_one(workers):
    assert most_snapshots(find_strategy("sync"), workers) <= 2


@pytest.mark.parametrize("groups", [2, 4])
def test_groups_share_one_each(groups):
    assert most_snapshots(find_strategy("mixed", groups=groups), 32) <= groups + 1


def test_asynchronous_workers_that_fetch_rarely_keep_what_they_fetched_not_copies():
    assert most_snapshots(find_strategy("downpour", local_step=False, fetch_every=0), 32) <= 2


def test_old_versions_are_let_go():
    made = parts(batch=4)
    size = sum(p.numel() for p in made.network.parameters())
    gradients = VirtualStore(made, find_strategy("downpour"), 4)
    alive = []

    def count() -> None:
        if gradients.version % 100 == 50:
            gc.collect()
            alive.append(sum(type(o) is torch.Tensor and o.numel() == size for o in gc.get_objects()))

    batches, observer = made.updates_per_epoch, Calling(count)
    VirtualDriver(find_strategy("downpour"), 4, GAMMA, batches=batches, gradients=gradients, observer=observer).run()
    assert len(alive) >= 3 and max(alive) <= min(alive) + 8
