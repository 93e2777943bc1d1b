"""What a worker computes does not depend on who it is, where its batches come from, or where its payload goes."""

from __future__ import annotations

from typing import ClassVar

import pytest
import torch
from torch import nn

from paceline.data.dataset import Arrays, as_is
from paceline.errors import StrategyError
from paceline.step.feeder import HostFeeder
from paceline.step.phase import LossPhase
from paceline.step.tally import Tally
from paceline.strategy.batch_source import BatchSource
from paceline.strategy.instructions import Compute
from paceline.strategy.learner import Learner
from paceline.strategy.presets import find_strategy
from tests.step.small_parts import CPU, parts_for, rows


def network(dropout: float = 0.0, norm: bool = False) -> nn.Sequential:
    torch.manual_seed(3)
    middle = [nn.BatchNorm1d(5)] if norm else []
    return nn.Sequential(nn.Linear(6, 5), *middle, nn.Tanh(), nn.Dropout(dropout), nn.Linear(5, 3))


def learner(strategy=None, *, dropout: float = 0.0, norm: bool = False, workers: int = 2, **settings) -> Learner:
    made = parts_for(network(dropout, norm), rows(), **{"lr": 0.1, **settings})
    return Learner(made, strategy or find_strategy("downpour"), workers)


def payload(of: Learner, *batches: int, bound: bool = False, worker: int = 0) -> torch.Tensor:
    out = torch.full((of.size,), 7.0)
    if bound:
        of.bind(out)
    start = of.initial() if not hasattr(of, "start") else of.start
    task = Compute(worker, 1, 0, batches, tuple(range(len(batches))), None)
    result = of.run(task, lambda _: (4, start), out, Tally(1))
    assert (result.pulled, result.steps) == (4, len(batches))
    return out


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_a_payload_is_the_gradient_that_autograd_finds(dropout):
    of = learner(dropout=dropout)
    out = payload(of, 2)
    batch = of.source.batch(0, 2)
    of.parts.seed(0, 2)
    loss = nn.functional.cross_entropy(of.parts.network(batch[0]), batch[1])
    expected = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(of.parts.network.parameters()))])
    torch.testing.assert_close(out, expected)


def test_it_does_not_matter_where_the_payload_goes_or_whose_it_is():
    twice = find_strategy("downpour", push_every=2)
    plain = payload(learner(twice, dropout=0.3), 1, 3)
    assert torch.equal(plain, payload(learner(twice, dropout=0.3), 1, 3, bound=True))
    assert torch.equal(plain, payload(learner(twice, dropout=0.3), 1, 3, worker=1))
    assert not torch.equal(plain, payload(learner(twice, dropout=0.3), 1, 4))
    single = payload(learner(dropout=0.3), 1)
    assert torch.equal(single, payload(learner(dropout=0.3), 1, bound=True))


def test_gradients_of_a_task_add_up():
    torch.testing.assert_close(payload(learner(), 1, 3), payload(learner(), 1) + payload(learner(), 3))


def test_samples_in_host_memory_give_the_same():
    resident, host = learner(), learner()
    data = host.parts.dataset.train
    assert isinstance(data, Arrays)
    host.source.feeder = HostFeeder(data, host.source.order, as_is, CPU)
    assert torch.equal(payload(resident, 0, 2), payload(host, 0, 2))


def test_passes_of_their_own_are_in_orders_of_their_own_and_whole():
    source = BatchSource(parts_for(network(), rows()), full_pass_per_worker=True)
    passes = [torch.cat([source.indices(0, worker * 5 + i) for i in range(5)]) for worker in range(3)]
    assert all(sorted(one.tolist()) == list(range(40)) for one in passes)
    assert len({tuple(one.tolist()) for one in passes}) == 3


def test_shared_batches_are_those_of_one_process():
    made = parts_for(network(), rows())
    source = BatchSource(made, full_pass_per_worker=False)
    for number, expected in enumerate(made.feeder.order.epoch(1)):
        assert torch.equal(source.indices(1, number), expected)


@pytest.mark.parametrize("name", ["easgd", "local-sgd", "downpour"])
def test_one_learner_serves_many_workers(name):
    """Two workers in turn on one learner end where two learners of their own do."""
    strategy = find_strategy(name, fetch_every=0 if name != "local-sgd" else 2, push_every=2)

    def tasks(worker: int) -> list[Compute]:
        first = [(0,), (0,) if name == "local-sgd" else ()]
        return [Compute(worker, 1 + i, 0, (2 * i + worker, 3), first[i], None) for i in range(2)]

    own = [learner(strategy, optimizer="momentum") for _ in range(2)]
    shared = learner(strategy, optimizer="momentum")
    start = shared.initial()
    states = [shared.fresh(), shared.fresh()]
    for turn in range(2):
        for worker in range(2):
            outs = [torch.zeros(shared.size) for _ in range(2)]
            task = tasks(worker)[turn]
            own[worker].run(task, lambda _: (0, start), outs[0], Tally(1))
            shared.load_state(states[worker])
            shared.run(task, lambda _: (0, start), outs[1], Tally(1))
            states[worker] = shared.state()
            assert torch.equal(outs[0], outs[1])


def test_buffers_travel_behind_the_parameters():
    of = learner(norm=True)
    assert of.size == of.parameters + 10
    before = of.initial()
    assert torch.equal(before[of.parameters :], torch.tensor([0.0] * 5 + [1.0] * 5))
    out = payload(of, 0)
    assert torch.equal(out[of.parameters :], of.local[of.parameters :])
    assert not torch.equal(out[of.parameters :], before[of.parameters :])


def test_several_phases_make_one_vector():
    made = network()
    parts = parts_for(made, rows())
    halves = [LossPhase(made, parts.workload, name) for name in ("first", "second")]
    halves[0].parameters, halves[1].parameters = list(made[0].parameters()), list(made[3].parameters())
    of = Learner(parts_for(made, rows(), made=halves), find_strategy("downpour"), 2)
    assert [phase.size for phase in of.layout.phases] == [35, 18]
    torch.testing.assert_close(payload(of, 0), payload(learner(), 0))


def test_what_cannot_be_one_vector_is_refused():
    made = network()
    parts = parts_for(made, rows())
    twice = [LossPhase(made, parts.workload, name) for name in ("first", "second")]
    with pytest.raises(StrategyError, match="two phases share a parameter"):
        Learner(parts_for(made, rows(), made=twice), find_strategy("downpour"), 2)


def test_the_first_position_is_fetched_and_elastic_averaging_fetches_once_more_before_it_pushes():
    of, asked = learner(find_strategy("easgd", push_every=2)), []

    def fetch(position: int) -> tuple[int, torch.Tensor]:
        asked.append(position)
        return 4 + len(asked), of.initial()

    result = of.run(Compute(0, 1, 0, (0, 1), (0,), None), fetch, torch.zeros(of.payload_size), Tally(1))
    assert asked == [0, 2] and result.pulled == 6


@pytest.mark.parametrize("exchange", ["topk:0.25", "int8"])
def test_an_encoded_payload_is_smaller_and_buffers_follow_it(exchange):
    of = learner(find_strategy("compressed", exchange=exchange), norm=True)
    assert of.payload_size == of.exchange.payload_size(of.parameters) + 10
    out = torch.zeros(of.payload_size)
    of.run(Compute(0, 1, 0, (0,), (0,), None), lambda _: (0, of.initial()), out, Tally(1))
    assert torch.equal(out[of.encoder.size :], of.local[of.parameters :])
    kept = of.state().exchange["residual"]
    assert kept.abs().sum() > 0, "what was not sent is kept for later"


class NotedMode(torch.optim.SGD):
    modes: ClassVar[list[bool]] = []

    def step(self, closure=None):
        NotedMode.modes.append(torch.is_inference_mode_enabled())
        return super().step(closure)


def test_a_worker_s_optimizer_is_never_called_in_inference_mode():
    """A tensor that it keeps from one batch could not be changed after the next, smaller one."""
    made = parts_for(network(), rows(42), optimizer=f"{__name__}:NotedMode", lr=0.1)
    of = Learner(made, find_strategy("local-sgd"), 2)
    assert of.phases[0].chain is not None
    NotedMode.modes.clear()
    task = Compute(0, 1, 0, (0, 5), (0,), None)
    of.run(task, lambda _: (0, of.initial()), torch.zeros(of.size), Tally(1))
    assert NotedMode.modes == [False, False]


def test_a_worker_differentiates_where_nothing_else_is():
    """A worker's process leaves gradients out for all it does; the last batch of an epoch is left to autograd."""
    made = parts_for(network(), rows(42), lr=0.1)
    of = Learner(made, find_strategy("downpour"), 2)
    assert of.phases[0].chain is not None and len(of.source.batch(0, 5)[1]) < of.phases[0].chain.batch
    expected = payload(of, 5)
    with torch.no_grad():
        assert torch.equal(payload(of, 5), expected)
