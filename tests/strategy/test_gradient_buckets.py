"""Gradients in buckets: the same numbers as in one piece, and each bucket is complete before it is exchanged."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from paceline.step.phase import LossPhase
from paceline.step.tally import Tally
from paceline.strategy import gradient_buckets
from paceline.strategy.gradient_buckets import bucket_bounds
from paceline.strategy.instructions import Compute
from paceline.strategy.learner import Learner
from paceline.strategy.presets import find_strategy
from tests.step.small_parts import parts_for, rows

MIB = 1 << 20


def test_buckets_are_cut_from_the_end_at_the_boundaries_of_parameters():
    sizes = [MIB, 9 * MIB, 6 * MIB, 100, 200 * 1024, 100 * 1024]  # of numbers with four bytes
    ends = [sum(sizes[:count]) for count in range(len(sizes) + 1)]
    assert bucket_bounds(sizes, 4) == ((ends[4], ends[6]), (ends[1], ends[4]), (0, ends[1]))
    assert bucket_bounds(sizes, 8) == ((ends[4], ends[6]), (ends[2], ends[4]), (ends[1], ends[2]), (0, ends[1]))


def test_small_networks_have_a_single_bucket():
    assert bucket_bounds([MIB - 1], 4) == bucket_bounds([400_000, 400_000], 4) == ()
    assert bucket_bounds([2 * MIB], 4) == (), "a parameter is not cut"
    assert bucket_bounds([0, MIB, 0, MIB, 0], 4) == ((MIB, 2 * MIB), (0, MIB))


# What a worker computes


class Noted(torch.autograd.Function):
    """Passes values on, and notes when the backward pass gets here."""

    @staticmethod
    def forward(ctx, x, notes, name):
        ctx.notes, ctx.name = notes, name
        return x.clone()

    @staticmethod
    def backward(ctx, slope):
        ctx.notes.append(f"backward of {ctx.name}")
        return slope, None, None


class Noting(nn.Module):
    """A first layer, a normalised second one and an output; `unused` has no part in the loss."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.unused = nn.Parameter(torch.ones(7))
        self.first, self.norm = nn.Linear(6, 5), nn.BatchNorm1d(5)
        self.second = nn.Linear(5, 5)
        self.output = nn.Linear(5, 3)
        self.notes: list[str] = []

    def forward(self, x: Tensor) -> Tensor:
        h = Noted.apply(self.first(x), self.notes, "the output of first")
        h = self.second(Noted.apply(self.norm(h).relu(), self.notes, "the input of second"))
        return self.output(Noted.apply(h.relu(), self.notes, "the input of output"))


@pytest.fixture
def tiny(monkeypatch):
    """A bucket for the output and one for every 100 bytes of the rest."""
    monkeypatch.setattr(gradient_buckets, "SINGLE_BELOW_BYTES", 0)
    monkeypatch.setattr(gradient_buckets, "FIRST_BUCKET_BYTES", 60)
    monkeypatch.setattr(gradient_buckets, "BUCKET_BYTES", 100)


def learner(strategy="sync", network: nn.Module | None = None, **settings) -> Learner:
    return Learner(parts_for(network or Noting(), rows(), **{"lr": 0.1, **settings}), find_strategy(strategy), 2)


def payload(
    of: Learner, batch: int = 1, notes: list[str] | None = None
) -> tuple[Tensor, list[tuple[int, int, Tensor]]]:
    """The payload, and what was told of its buckets: samples, number, and what they were at that moment."""
    out, told = torch.full((of.payload_size,), 7.0), []
    of.bind(out)
    start = of.initial()

    def start_bucket(samples: int, bucket: int) -> None:
        told.append((samples, bucket, out[slice(*of.buckets[bucket])].clone()))
        if notes is not None:
            notes.append(f"bucket {bucket}")

    of.run(Compute(0, 1, 0, (batch,), (0,), None), lambda _: (4, start), out, Tally(1), None, start_bucket)
    return out, told


@pytest.mark.parametrize("settings", [{}, {"accumulate": 3}], ids=["one backward pass", "micro-batches"])
@pytest.mark.parametrize("batch", [1, 3], ids=["whole", "last"])
def test_the_payload_is_the_same_and_each_bucket_is_complete_when_it_starts(tiny, settings, batch):
    bucketed = learner(**settings)
    out, told = payload(bucketed, batch)
    whole = learner(**settings)
    whole.buckets = ()
    expected, nothing = payload(whole, batch)
    assert torch.equal(out, expected) and not nothing
    assert [number for _, number, _ in told] == list(range(len(bucketed.buckets))) and len(told) >= 3
    size = len(bucketed.source.indices(0, batch))
    assert {samples for samples, _, _ in told} == {size}
    for _, number, at_start in told:
        assert torch.equal(at_start, out[slice(*bucketed.buckets[number])])
    assert not out[:7].any(), "no part of the loss"


def test_buckets_start_before_the_backward_pass_ends(tiny):
    network = Noting()
    payload(learner(network=network), notes=network.notes)
    notes = network.notes
    assert notes.index("bucket 0") < notes.index("backward of the input of second")
    assert notes.index("bucket 1") < notes.index("backward of the output of first")
    assert notes[-1] == f"bucket {len(learner().buckets) - 1}", "it waits for what is not part of the loss"


def test_of_micro_batches_only_the_last_one_starts_buckets(tiny):
    network = Noting()
    payload(learner(network=network, accumulate=3), notes=network.notes)
    ends = [place for place, note in enumerate(network.notes) if note == "backward of the output of first"]
    assert ends[1] < network.notes.index("bucket 0") < ends[2], "the third is the last"


def test_hooks_of_the_user_are_applied_first(tiny):
    found = []
    for buckets in (True, False):
        network = Noting()
        of = learner(network=network)
        of.buckets = of.buckets if buckets else ()
        network.second.weight.register_hook(lambda slope: 2 * slope)
        found.append(payload(of)[0])
        assert len(network.second.weight._backward_hooks) == 1, "ours are gone"
    assert torch.equal(*found)
    assert not torch.equal(found[0], payload(learner())[0])


class OwnGradient(LossPhase):
    def gradient(self, batch, generator):
        return super().gradient(batch, generator)


def test_what_is_not_one_gradient_from_one_backward_pass_has_no_buckets(tiny, monkeypatch):
    assert len(learner().buckets) > 1
    assert learner("downpour").buckets == (), "no group"
    assert learner("diloco").buckets == learner("local-sgd").buckets == (), "not the gradient"
    assert learner("deep-compression").buckets == (), "compressed"
    several = Learner(parts_for(Noting(), rows(), lr=0.1), find_strategy("sync", push_every=2), 2)
    assert several.buckets == (), "the gradient of several batches"
    chain = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
    assert learner(network=chain).buckets == (), "written out"
    parts = parts_for(Noting(), rows(), lr=0.1)
    parts.phases[0].__class__ = OwnGradient
    assert Learner(parts, find_strategy("sync"), 2).buckets == (), "the user's own"
