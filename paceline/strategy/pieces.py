"""How the flat vector is divided among the shards of a server: each makes its own piece of every update."""

from __future__ import annotations

from paceline.errors import StrategyError
from paceline.strategy.corrections import parse_correction
from paceline.strategy.layout import Layout
from paceline.strategy.strategy import Strategy

GRAIN = 64
"""Numbers. A loop over vector instructions takes fewer in a turn, and what is left at its end may round differently. So
pieces end at multiples of this, counted from the beginning of a phase: every bit is the same wherever they end."""


def check_shards(shards: int, strategy: Strategy, layout: Layout | None = None) -> None:
    """Whether updates of this strategy, and of these parameters, can be made in so many pieces."""
    if not isinstance(shards, int) or isinstance(shards, bool) or shards < 1:
        raise StrategyError(f"shards={shards!r} should be a whole number of at least 1")
    if shards == 1:
        return
    correction = parse_correction(strategy.correction)
    if correction is not None and not correction.elementwise:
        raise StrategyError(
            f"shards={shards}: correction {strategy.correction} is given whole vectors, which a shard has a piece of: "
            "it needs --shards 1"
        )
    most = None if layout is None else sum(_grains(layout))
    if layout is not None and most is not None and shards > most:
        raise StrategyError(
            f"shards={shards} are too many for {layout.parameters:,} parameters: they make at most {most} pieces"
        )


def pieces_of(layout: Layout, shards: int) -> list[slice]:
    """Of the parameters, one for each shard, as equal as possible. Buffers, after them, go with the last."""
    grains = sum(_grains(layout))
    assert 1 <= shards <= max(grains, 1), f"{shards} shards of {grains} grains"
    firsts = [_first_number(layout, grains * shard // shards) for shard in range(shards)]
    return [slice(*ends) for ends in zip(firsts, [*firsts[1:], layout.parameters], strict=True)]


def _grains(layout: Layout) -> list[int]:
    """Of each phase; the last of them may be shorter."""
    return [-(-phase.size // GRAIN) for phase in layout.phases]


def _first_number(layout: Layout, grain: int) -> int:
    """Where a grain begins."""
    begin = 0
    for phase, grains in zip(layout.phases, _grains(layout), strict=True):
        if grain < grains:
            return begin + grain * GRAIN
        begin, grain = begin + phase.size, grain - grains
    return begin
