"""Members that exchange gradients in buckets during the backward pass: the bits of the server's mean."""

from __future__ import annotations

import pytest
import torch

import paceline
from paceline.strategy import gradient_buckets
from paceline.strategy.learner import Learner
from paceline.strategy.phase_gradient import PhaseGradient
from paceline.strategy.presets import find_strategy
from paceline.testing import Fault
from paceline.training.drivers.ray.member_link import MemberLink
from tests.contract.small_training import workload
from tests.training.drivers.local.small import parameters as parameters_of
from tests.training.drivers.ray.in_process import job_of, parts_of
from tests.training.drivers.ray.test_groups import GLOO, averages, parameters
from tests.training.drivers.ray.test_server_and_workers import BATCHES, MADE, trained
from tests.training.dying_network import DyingNetwork

__all__ = ["averages"]  # a fixture


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setattr(gradient_buckets, "SINGLE_BELOW_BYTES", 0)
    monkeypatch.setattr(gradient_buckets, "FIRST_BUCKET_BYTES", 500)


def normed(**changes):
    return workload("tests.training.drivers.local.small:with_batch_norm", options={}, dropout=None, **MADE, **changes)


def job(strategy, workers, made=None, **changes):
    made = made or normed()
    buckets = Learner(parts_of(made), find_strategy(strategy), workers).buckets
    assert len(buckets) == 2
    return job_of(made, find_strategy(strategy), workers, buckets=buckets, **GLOO, **changes)


@pytest.fixture
def started(monkeypatch):
    """The buckets that began, and the gradients that were computed, of a member of the first rank."""
    found, start, compute = [], MemberLink.start_bucket, PhaseGradient.compute

    def starting(self, payload, bucket):
        if self.formation.rank == 0:
            found.append(bucket)
        start(self, payload, bucket)

    def computing(self, *arguments):
        outcome = compute(self, *arguments)
        found.append("computed")
        return outcome

    monkeypatch.setattr(MemberLink, "start_bucket", starting)
    monkeypatch.setattr(PhaseGradient, "compute", computing)
    return found


@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize("changes", [{}, {"accumulate": 2}], ids=["one backward pass", "micro-batches"])
def test_members_find_the_bits_that_the_server_does(workers, changes, tiny, averages, started):
    made = normed(**changes)
    at_server = trained(*job_of(made, find_strategy("sync"), workers))
    assert set(started) == {"computed"}, "no buckets without members to average with"
    among_members = trained(*job("sync", workers, made))
    assert started.count(0) == started.count(1) > BATCHES // 2 and averages and all(p is not None for p in averages)
    assert torch.equal(parameters(at_server), parameters(among_members))
    status = among_members.status(0.0, 0)
    assert status.finished and status.ledger == at_server.status(0.0, 0).ledger


def test_a_payload_that_is_not_finite_is_refused_by_name(tiny, averages):
    spoilt = (Fault("corrupt", at=5, worker=1),)
    server = trained(*job("sync", 2, faults=spoilt, on_bad_gradient="skip"))
    status = server.status(0.0, 0)
    assert [(fault.what, fault.worker) for fault in status.refusals] == [("refused", 1)]
    assert status.ledger.refused == 1 and parameters(server).isfinite().all()
    assert averages.count(None) == 2, "neither found a mean"


@pytest.mark.parametrize("workers", [2, 3])
def test_members_that_lose_each_other_between_two_buckets_push_whole_payloads(workers, tiny, averages, monkeypatch):
    begin, count = MemberLink._begin, []

    def lose(self, operation):
        if self.formation.rank == 1 and self.formation.number == 1:
            count.append(1)
            if len(count) == 30:

                def operation():
                    raise RuntimeError("the connection is closed")

        begin(self, operation)

    whole = trained(*job_of(normed(), find_strategy("sync"), workers))
    monkeypatch.setattr(MemberLink, "_begin", lose)
    found = trained(*job("sync", workers))
    assert found.serving.formations.formed == 2
    assert found.status(0.0, 0).ledger == whole.status(0.0, 0).ledger
    assert torch.equal(parameters(whole), parameters(found))


@pytest.mark.slow
@pytest.mark.serial
@pytest.mark.usefixtures("ray_cluster")
def test_a_member_that_dies_between_two_buckets_leaves_the_same_bits(tmp_path):
    lives, found = tmp_path / "lives", []
    for dies in (False, True):
        if dies:
            lives.touch()
        place = tmp_path / f"dies {dies}"
        run = paceline.train(
            DyingNetwork(lives), "sync", workers=3, data="digits", epochs=2, batch=64, optimizer="sgd", lr=0.05,
            device="cpu", threads=1, driver="ray", collective="gloo", out=place,
        )  # fmt: skip
        assert run.distribution.collective == "gloo"
        assert run.distribution.ledger.applied_by_epoch == (23, 23)
        assert [fault.what for fault in run.distribution.faults] == ["died"] * dies
        found.append(parameters_of(place))
    assert not lives.exists(), "one of them died"
    assert torch.equal(*found)
