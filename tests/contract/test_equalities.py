"""What strategies have in common: they equal one process, and each other, where they should."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from paceline.step.optimizers import Rule, torch_optimizer
from paceline.strategy.presets import find_strategy
from tests.contract.drivers import ALL_DRIVERS, train
from tests.contract.small_training import EQUAL, GAMMA, difference, parts, trained, workload


def one_process(joined: int, optimizer: str, l2: float) -> torch.Tensor:
    """A plain loop over batches of `joined` samples."""
    made = parts(batch=joined, optimizer=optimizer, l2=l2)
    own = list(made.network.parameters())
    rule = torch_optimizer(Rule(optimizer, 0.05, l2=l2), own)
    for chosen in made.feeder.order.permutation(0).split(joined):
        rule.zero_grad()
        x, y = made.dataset.train.x[chosen], made.dataset.train.y[chosen]
        F.cross_entropy(made.network(x), y).backward()
        rule.step()
    return torch.cat([p.detach().flatten() for p in own])


@pytest.mark.parametrize("driver", ALL_DRIVERS)
@pytest.mark.parametrize("name", ["sync", "towers", "backup"])
def test_sync_is_one_process_with_the_joined_batch(driver, name, tmp_path):
    """103 updates, the last of a smaller batch."""
    strategy = find_strategy(name, backup_workers=0)
    found = train(driver, workload(batch=7), strategy, 2, tmp_path / "run")
    assert found.distribution.updates == 103
    assert difference(found.parameters, one_process(14, "sgd", 0.0)) <= 1e-5


def test_so_it_is_with_momentum_and_regularisation():
    found = trained(find_strategy("sync"), 2, batch=7, optimizer="momentum", l2=1e-3)
    assert difference(found.parameters, one_process(14, "momentum", 1e-3)) <= 1e-5


@pytest.mark.parametrize("driver", ALL_DRIVERS)
def test_mixed_with_one_group_is_sync(driver, tmp_path):
    both = [
        train(driver, workload(), strategy, 3, tmp_path / strategy.name)
        for strategy in (find_strategy("sync"), find_strategy("mixed", groups=1))
    ]
    assert torch.equal(both[0].parameters, both[1].parameters)


@pytest.mark.parametrize("correction", ["constant:0", "adaptive:0"])
@pytest.mark.parametrize("cluster", [EQUAL, GAMMA], ids=["equal", "gamma"])
def test_compensation_of_strength_zero_is_downpour(correction, cluster):
    compensated = trained(find_strategy("delay-compensated", correction=correction), 6, cluster)
    downpour = trained(find_strategy("downpour", fetch_every=1, push_every=1), 6, cluster)
    assert torch.equal(compensated.parameters, downpour.parameters)
    assert compensated.distribution.ledger.staleness == downpour.distribution.ledger.staleness


def test_one_asynchronous_worker_is_one_process():
    assert difference(trained(find_strategy("downpour"), 1, batch=14).parameters, one_process(14, "sgd", 0.0)) <= 1e-5


def test_a_single_step_of_local_sgd_averaged_is_sync():
    even = "digits:1424"  # all batches alike: parameters count equally, gradients by their samples
    local = trained(find_strategy("local-sgd", fetch_every=1, push_every=1, server_optimizer="sgd:1"), 2, data=even)
    assert difference(local.parameters, trained(find_strategy("sync"), 2, data=even).parameters) <= 1e-5


def test_an_unbounded_bound_is_none():
    free = trained(find_strategy("stale-sync", staleness_bound=10_000), 5)
    assert torch.equal(free.parameters, trained(find_strategy("delay-compensated", correction="none"), 5).parameters)
