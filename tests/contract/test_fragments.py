"""Fragments in turn: DiLoCo piece by piece, each exchanged while workers continue, on every driver."""

from __future__ import annotations

import re

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from paceline.errors import StrategyError
from paceline.simulation.links import message_sizes
from paceline.simulation.replay import replay_run
from paceline.simulation.virtual_cluster import Change, Network, VirtualCluster
from paceline.strategy.presets import find_strategy
from paceline.strategy.strategy import Strategy
from paceline.testing import Fault
from paceline.training.checkpoint import load_checkpoint
from paceline.training.drivers.local import launcher
from tests.contract.drivers import ALL_DRIVERS, DRIVERS, train
from tests.contract.small_training import EQUAL, GAMMA, difference, parts, trained, workload
from tests.contract.test_conservation import BATCHES
from tests.contract.test_repeating import with_batch_norm

SLOW = VirtualCluster(compute=GAMMA.compute, network=Network(0.002, 1e6))
EVERY_FIFTH = {"fetch_every": 5, "push_every": 5}
DILOCO = find_strategy("diloco", **EVERY_FIFTH)


def streaming(**changes) -> Strategy:
    return find_strategy("streaming-diloco", **{**EVERY_FIFTH, "overlap_steps": 2, **changes})


@pytest.mark.parametrize("driver", ALL_DRIVERS)
def test_one_fragment_without_overlap_is_diloco(driver, tmp_path):
    made = workload(epochs=2, optimizer="momentum", dropout=0.2)
    one = train(driver, made, streaming(fragments=1, overlap_steps=0, mixing=0.0), 3, tmp_path / "one")
    whole = train(driver, made, DILOCO, 3, tmp_path / "whole")
    assert torch.equal(one.parameters, whole.parameters)
    assert one.distribution.updates == whole.distribution.updates == 2 * 12


@pytest.mark.parametrize("cluster", [EQUAL, SLOW], ids=["no network", "slow network"])
def test_so_it_is_with_buffers_and_messages_that_take_long(cluster):
    made = {"network": f"{with_batch_norm.__module__}:with_batch_norm", "dropout": None, "options": {}}
    one = trained(streaming(fragments=1, overlap_steps=0, mixing=0.0), 3, cluster, **made)
    assert torch.equal(one.parameters, trained(DILOCO, 3, **made).parameters)


@pytest.mark.parametrize("driver", ALL_DRIVERS)
@pytest.mark.parametrize("exchange", ["delta", "delta+int8", "delta+topk:0.1"])
def test_bits_depend_neither_on_the_driver_nor_on_timing_and_are_repeated(driver, exchange, tmp_path):
    strategy, made = streaming(exchange=exchange), workload(epochs=2, dropout=0.2)
    found = train(driver, made, strategy, 3, tmp_path / "run", record_events=True)
    assert found.distribution.ledger.applied_by_epoch == (BATCHES,) * 2
    assert torch.equal(replay_run(tmp_path / "run"), found.parameters)
    slowly = trained(strategy, 3, SLOW, epochs=2, dropout=0.2)
    assert torch.equal(slowly.parameters, found.parameters)


def reference(rounds: int, steps: int, fragments: int, overlap: int, mixing: float, workers: int = 2) -> Tensor:
    """Algorithm 2 of Douillard et al. 2025, with plain SGD inside and Nesterov momentum outside."""
    made = parts()
    own = list(made.network.parameters())
    batches = made.feeder.order.permutation(0).split(8)
    centre = torch.cat([p.detach().flatten() for p in own])
    momentum, local = torch.zeros_like(centre), [centre.clone() for _ in range(workers)]
    known = [centre.clone() for _ in range(workers)]
    cuts = [n * len(centre) // fragments for n in range(fragments + 1)]
    for number in range(rounds):
        last = slice(*cuts[(number - 1) % fragments :][:2])
        piece = slice(*cuts[number % fragments :][:2])
        for worker in range(workers):
            for step in range(steps):
                if step == overlap and number:
                    known[worker][last] = centre[last]
                    local[worker][last] = mixing * local[worker][last] + (1 - mixing) * centre[last]
                torch.nn.utils.vector_to_parameters(local[worker], own)
                chosen = batches[(number * workers + worker) * steps + step]
                loss = F.cross_entropy(made.network(made.dataset.train.x[chosen]), made.dataset.train.y[chosen])
                gradient = torch.cat([g.flatten() for g in torch.autograd.grad(loss, own)])
                local[worker] = local[worker] - 0.05 * gradient
        outer = sum(known[w][piece] - local[w][piece] for w in range(workers)) / workers
        momentum[piece] = 0.9 * momentum[piece] + outer
        centre = centre.clone()
        centre[piece] -= 0.7 * (outer + 0.9 * momentum[piece])
    return centre


@pytest.mark.parametrize(("fragments", "overlap", "mixing"), [(1, 0, 0.0), (3, 0, 0.0), (3, 2, 0.5), (4, 4, 0.25)])
def test_it_is_the_published_algorithm(fragments, overlap, mixing):
    """180 batches: 17 rounds of two workers with five each, and one of what is left."""
    strategy = streaming(fragments=fragments, overlap_steps=overlap, mixing=mixing)
    found = trained(strategy, 2)
    assert found.distribution.updates == 18
    assert difference(found.parameters, reference(18, 5, fragments, overlap, mixing)) <= 1e-5


@pytest.mark.parametrize("exchange", ["delta", "delta+int8"])
def test_a_period_carries_as_many_bytes_in_smaller_messages(exchange):
    whole = message_sizes(find_strategy("diloco", exchange=exchange), 4 << 20)
    piece = message_sizes(find_strategy("streaming-diloco", exchange=exchange), 4 << 20)
    assert 4 * piece.push_bytes == whole.push_bytes and 4 * piece.fetch_bytes == whole.fetch_bytes
    assert piece.joining_bytes == whole.fetch_bytes


def test_local_steps_hide_the_push_and_the_update():
    """A step takes 1 s, and all parameters or a fourth of them take 1.3 or 0.3 s in each direction; five per round."""
    cluster = VirtualCluster(compute=EQUAL.compute, network=Network(0.0, 10_000.0))
    ideal = trained(DILOCO, 2, EQUAL).distribution.seconds
    whole, piece = (trained(each, 2, cluster).distribution.seconds for each in (DILOCO, streaming()))
    assert whole > 1.25 * ideal
    assert ideal < piece < 1.06 * ideal + 2, (
        "the fetches of fragments, the first fetch and the last push are not hidden"
    )


def test_several_groups_exchange_fragments_with_each_other(tmp_path):
    strategy = find_strategy("mixed", groups=2, exchange="delta", fragments=3, overlap=True, **EVERY_FIFTH)
    for driver in ("virtual", "local"):
        found = train(driver, workload(), strategy, 4, tmp_path / driver, record_events=True)
        assert found.distribution.ledger.applied_by_epoch == (BATCHES,)
        assert torch.equal(replay_run(tmp_path / driver), found.parameters)


def test_every_batch_is_done_once_though_workers_and_the_server_die(tmp_path):
    kills = (Fault("kill", 3, 1), Fault("kill", 9, 0), Fault("kill", 14), Fault("kill", 20, 2))
    slow = tuple(Fault("slow", worker=worker, seconds=0.003) for worker in range(3))
    made = workload(epochs=3)
    found = train("local", made, streaming(), 3, tmp_path / "run", faults=(*kills, *slow), record_events=True)
    assert found.distribution.fault_count == len(kills)
    assert found.distribution.ledger.applied_by_epoch == (BATCHES,) * 3
    assert torch.equal(replay_run(tmp_path / "run"), found.parameters)


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_round_whose_payloads_are_all_refused_is_not_waited_for(driver, tmp_path):
    spoilt = tuple(Fault("corrupt", at=2, worker=worker) for worker in range(2))
    options = {"cluster": SLOW} if driver == "virtual" else {}
    given = {"faults": spoilt, "on_bad_gradient": "skip"}
    found = train(driver, workload(), streaming(), 2, tmp_path / "run", **options, **given)
    assert found.distribution.ledger.refused == 10
    assert found.distribution.ledger.closed == BATCHES


def test_a_round_continues_without_a_worker_that_leaves():
    cluster = VirtualCluster(compute=EQUAL.compute, network=SLOW.network, changes=(Change(7.5, 1, "leaves"),))
    found = trained(streaming(), 4, cluster).distribution
    assert found.ledger.applied_by_epoch == (BATCHES,) and found.ledger.returned > 0


def test_a_resumed_run_does_all_batches_and_continues_with_the_next_fragment(tmp_path):
    launcher.run(workload(epochs=1), streaming(), workers=2, out=tmp_path / "run")
    before = load_checkpoint(tmp_path / "run").parameters
    launcher.resume(tmp_path / "run", changes={"epochs": 2})
    after = load_checkpoint(tmp_path / "run").parameters
    assert not torch.equal(before["output.weight"], after["output.weight"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"strategy": "sync", "fragments": 2}, "fragments are for what an optimizer of the worker's own has changed"),
        ({"strategy": "easgd", "fragments": 2}, "fragments are for synchronous groups"),
        ({"exchange": "elastic"}, "fragments are for what an optimizer of the worker's own has changed"),
        ({"server_optimizer": "torch.optim:RAdam:0.1"}, "need a built-in server optimizer"),
        ({"fragments": 0}, "at least 1"),
        ({"mixing": 1.5}, "mixing=1.5 should be a number from 0 to 1"),
        ({"strategy": "diloco", "mixing": 0.5}, "are for parameters that are exchanged in fragments"),
        ({"fragments": 10**6}, "is more than the network's"),
    ],
)
def test_mistakes(changes, message):
    with pytest.raises(StrategyError, match=re.escape(message)):
        trained(find_strategy(changes.pop("strategy", "streaming-diloco"), **changes), 2)
