"""However many shards a server has: together they make the same update, to the last bit."""

from __future__ import annotations

import pytest
import torch

from paceline.errors import StrategyError
from paceline.step.optimizers import Rule
from paceline.strategy import server as module
from paceline.strategy.pieces import GRAIN, check_shards, pieces_of
from paceline.strategy.server import Given, Payload, Server
from paceline.strategy.strategy import Strategy, preset
from paceline.workload import OPTIMIZERS
from tests.strategy.flat_vectors import layout, order, vector


@pytest.mark.parametrize("sizes", [(1000,), (200, 37, 5, 333), (129,), (65_536, 70_001)])
@pytest.mark.parametrize("shards", [1, 2, 3])
def test_pieces_cover_the_parameters_once_and_are_nearly_equal(sizes, shards):
    where = layout(*sizes, buffers=7)
    pieces = pieces_of(where, shards)
    assert [piece.start for piece in pieces] == [0, *(piece.stop for piece in pieces[:-1])]
    assert pieces[-1].stop == where.parameters
    lengths = [piece.stop - piece.start for piece in pieces]
    assert min(lengths) > 0 and max(lengths) - min(lengths) <= GRAIN * (1 + len(sizes))


def test_pieces_begin_at_whole_grains_of_their_phase():
    where = layout(100, 1000)
    assert [piece.start for piece in pieces_of(where, 4)] == [0, 100 + 2 * GRAIN, 100 + 7 * GRAIN, 100 + 11 * GRAIN]


def test_as_many_shards_as_grains_have_one_each():
    assert pieces_of(layout(130), 3) == [slice(0, 64), slice(64, 128), slice(128, 130)]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize(
    "strategy",
    [
        preset("downpour"), preset("delay-compensated", correction="constant:0.04"),
        preset("delay-compensated", correction="adaptive:2"), preset("staleness-aware"),
    ],
    ids=["none", "constant", "adaptive", "staleness"],
)  # fmt: skip
@pytest.mark.parametrize("block", [128, 1 << 16])
def test_shards_make_the_update_of_one_server_bit_by_bit(optimizer, strategy, block, monkeypatch):
    monkeypatch.setattr(module, "BLOCK", block)
    where = layout(1237, 411, rule=Rule(optimizer, 0.05, l2=1e-3, l1=1e-4), buffers=5)
    expected = after_updates(strategy, where, 1)
    for shards in (2, 3, 7):
        found = after_updates(strategy, where, shards)
        assert found.keys() == expected.keys()
        for name, tensor in expected.items():
            assert torch.equal(found[name], tensor), f"{name} with {shards} shards"


def test_so_they_do_with_groups_of_several_payloads():
    where = layout(1237, 411, buffers=5)
    strategy = Strategy("mixed", groups=2, correction="adaptive:2")
    expected = after_updates(strategy, where, 1, (2, 3))
    found = after_updates(strategy, where, 3, (2, 3))
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def after_updates(strategy: Strategy, where, shards: int, groups: tuple[int, ...] = (1,)) -> dict[str, torch.Tensor]:
    """Parameters and all state after three updates, each beside the last, by servers that have a piece each."""
    pieces = [None] if shards == 1 else pieces_of(where, shards)
    servers = [Server(strategy, where, 2, piece) for piece in pieces]
    current, state = vector(where.size, 1), servers[0].initial_state()
    kept = [servers[0].initial_kept() for _ in groups]
    for number in range(1, 4):
        wrong = torch.full_like(current, 9.0)
        after = {name: torch.full_like(t, 9.0) for name, t in state.items()}
        kept_after = [{name: torch.full_like(t, 9.0) for name, t in of_group.items()} for of_group in kept]
        given, worker = [], 0
        for members, before, now in zip(groups, kept, kept_after, strict=True):
            payloads = [Payload(vector(where.size, 100 * number + worker + i), 8 + i, 1) for i in range(members)]
            given.append(Given(payloads, vector(where.size, 7), before, now))
            worker += members
        for server in reversed(servers):
            server.apply(order(*groups, update=number, staleness=3), given, current, wrong, state, after)
        current, state, kept = wrong, after, kept_after
    named = {f"{name} of group {group}": t for group, table in enumerate(kept) for name, t in table.items()}
    return {"parameters": current, **state, **named}


def whole(gradient, parameters, backup, staleness, state):
    return gradient / gradient.norm()


@pytest.mark.parametrize("shards", [0, -1, True, 1.5, "2"])
def test_what_is_no_number_of_shards_is_refused(shards):
    with pytest.raises(StrategyError, match="should be a whole number of at least 1"):
        check_shards(shards, preset("sync"))


def test_a_correction_of_whole_vectors_is_refused():
    strategy = preset("downpour", correction=f"{__name__}:whole")
    check_shards(1, strategy)
    with pytest.raises(StrategyError, match=f"shards=2: correction {__name__}:whole is given whole vectors"):
        check_shards(2, strategy)


@pytest.mark.parametrize("correction", ["none", "constant:0.04", "adaptive:2", "staleness"])
def test_the_known_corrections_are_not(correction):
    check_shards(3, preset("delay-compensated", correction=correction), layout(1000))


def test_more_shards_than_the_parameters_can_be_divided_into_are_refused():
    with pytest.raises(StrategyError, match="shards=4 are too many for 130 parameters: they make at most 3 pieces"):
        check_shards(4, preset("sync"), layout(130))
