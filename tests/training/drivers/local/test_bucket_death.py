"""A member that dies while its group exchanges buckets: the group starts again, and the result is the same."""

from __future__ import annotations

import paceline
from paceline.strategy.gradient_buckets import bucket_bounds
from tests.training.drivers.local.small import assert_nothing_is_left, parameters
from tests.training.drivers.local.test_collective import difference
from tests.training.dying_network import DyingNetwork

BATCHES = -(-1437 // 64)


def test_a_member_that_dies_between_two_buckets_restarts_its_group(tmp_path):
    lives = tmp_path / "lives"
    found = []
    for dies in (False, True):
        if dies:
            lives.touch()
        network = DyingNetwork(lives)
        assert len(bucket_bounds([p.numel() for p in network.parameters()], 4)) == 2
        place = tmp_path / f"dies {dies}"
        run = paceline.train(
            network, "sync", workers=2, data="digits", epochs=1, batch=64, optimizer="sgd", lr=0.05, device="cpu",
            threads=1, driver="local", collective="gloo", out=place,
        )  # fmt: skip
        assert run.distribution.collective == "gloo"
        assert run.distribution.ledger.applied_by_epoch == (BATCHES,)
        assert sorted(fault.what for fault in run.distribution.faults) == (["died", "restarted"] if dies else [])
        found.append(parameters(place))
    assert not lives.exists(), "one of them died"
    assert difference(*found) <= 1e-5
    assert_nothing_is_left()
