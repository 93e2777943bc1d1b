"""Slices of a vector and of the server's state: cut and joined again, and when there is one shard only."""

from __future__ import annotations

import itertools

import pytest
import torch

from paceline.errors import StrategyError
from paceline.step.optimizers import Rule
from paceline.strategy.layout import Layout, PhaseLayout
from paceline.strategy.presets import find_strategy
from paceline.training.drivers.ray.job import Job
from paceline.training.drivers.ray.mailbox import Mailbox
from paceline.training.drivers.ray.messages import ServerState
from paceline.training.drivers.ray.serving import ServedTraining
from paceline.training.drivers.ray.sharding import SHARD_BYTES, Sharding, choose_shards
from paceline.training.drivers.ray.vector_parts import ALIGNED
from paceline.workload import resolve

MLP = resolve("mlp", {"data": "digits"})


def layout(*sizes: int, buffers: int = 0, **rule) -> Layout:
    rule = Rule(rule.pop("optimizer", "adam"), 0.1, **rule)
    return Layout(tuple(PhaseLayout(rule, (("all", (size,)),)) for size in sizes), buffers, 10, 1, "float32")


def job_of(made: Layout, shards: int, strategy: str = "downpour") -> Job:
    return Job(find_strategy(strategy), made, MLP, 2, 1, "cpu", made.size, shards=shards)


@pytest.mark.parametrize("sizes", [(1000,), (300, 700), (64, 10, 2000), (5,)])
@pytest.mark.parametrize("shards", [2, 3, 7])
def test_slices_cover_the_vector_and_begin_where_processors_do(sizes, shards):
    made = layout(*sizes, buffers=130)
    slices = Sharding(job_of(made, shards)).slices
    assert slices[0].start == 0 and slices[-1].stop == made.size
    assert all(before.stop == after.start for before, after in itertools.pairwise(slices))
    starts = {first for first, _ in made.phase_ends()} | {made.parameters}
    assert all(any((piece.start - first) % ALIGNED == 0 for first in starts) for piece in slices)


def test_a_state_is_the_same_after_it_was_cut_and_joined():
    made = layout(300, 700, buffers=50)
    job = job_of(made, 3, "delay-compensated")
    whole = ServedTraining(job, ServerState(torch.randn(made.size)), [Mailbox(None)] * 2).snapshot()
    for tensor in [
        *whole.saved["state"].values(),
        *(t for group in whole.saved["corrections"] for t in group.values()),
    ]:
        tensor.copy_(torch.rand_like(tensor))
    sharding = Sharding(job)
    cut = sharding.states_of_shards(whole)
    for number, state in enumerate(cut):  # each is one that a shard can begin from
        assert ServedTraining(sharding.of_shard(number), state, [Mailbox(None)] * 2).snapshot().version == 0
    again = sharding.whole(cut)
    assert torch.equal(again.parameters, whole.parameters)
    assert again.saved["position"] == whole.saved["position"]
    assert again.saved["state"].keys() == whole.saved["state"].keys()
    assert all(torch.equal(again.saved["state"][name], tensor) for name, tensor in whole.saved["state"].items())
    for mine, its in zip(again.saved["corrections"], whole.saved["corrections"], strict=True):
        assert all(torch.equal(mine[name], tensor) for name, tensor in its.items())
    assert len(sharding.state_of_server(whole).parameters) == 0


def choose(asked, made=None, strategy="downpour", nodes=3, collective="server", always=False):
    return choose_shards(asked, find_strategy(strategy), made or layout(1000), nodes, collective, always=always)


def test_by_default_large_parameters_are_shared_by_as_many_servers_as_there_are_nodes():
    numbers = SHARD_BYTES // 4
    assert choose(None, layout(numbers)) == 1
    assert choose(None, layout(numbers + 1)) == 2
    assert choose(None, layout(9 * numbers)) == 3
    assert choose(None, layout(9 * numbers), nodes=1) == 1
    assert choose(None, layout(9 * numbers, clip_norm=1.0)) == 1
    assert choose(None, layout(9 * numbers), "sync", collective="gloo") == 1
    assert choose(2, strategy="sync", collective="gloo") == 2


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"strategy": "streaming-diloco"}, "the strategy exchanges fragments of the parameters in turns"),
        ({"strategy": "compressed"}, "payloads of the exchange topk:0.01 cannot be cut into slices"),
        ({"made": layout(10, clip_norm=1.0)}, "`clip_norm` needs the whole gradient"),
        ({"made": layout(10, optimizer="torch.optim:RMSprop")}, "the optimizer torch.optim:RMSprop needs the whole"),
        (
            {"strategy": "sync", "collective": "gloo", "always": True},
            r"average among their members \(collective gloo\)",
        ),
    ],
)
def test_what_needs_whole_vectors_is_refused_in_one_line(given, why):
    with pytest.raises(StrategyError, match=rf"`server_shards=2` is not possible: .*{why}") as caught:
        choose(2, **given)
    assert "\n" not in str(caught.value)
    assert choose(1, **given) == 1
