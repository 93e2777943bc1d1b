"""Which groups can average their payloads among their members, and from what size on the Ray driver lets them."""

from __future__ import annotations

from paceline.strategy.strategy import Strategy

AVERAGED_FROM_BYTES = 1 << 20
"""Smaller payloads reach the server sooner than members can meet."""


def averaging_obstacle(strategy: Strategy, workers: int) -> str:
    """Why members cannot average with torch.distributed; empty if they can."""
    if strategy.groups is None:
        return f"{strategy.name} has none, only workers by themselves"
    if strategy.backup_workers:
        return f"{strategy.name} continues without some"
    if strategy.fragments is not None:
        return f"those of {strategy.name} compute while a fragment is exchanged"
    if not strategy.make_exchange.is_dense:
        return f"payloads of {strategy.exchange} cannot be added up"
    if workers // strategy.groups < 2:
        return f"those of {strategy.name} with {workers} workers have one each"
    return ""


def averaging_obstacle_on_cluster(strategy: Strategy, workers: int) -> str:
    """The same for the Ray driver, whose workers may have their next task meanwhile."""
    obstacle = averaging_obstacle(strategy, workers)
    return obstacle or (f"those of {strategy.name} compute meanwhile" if strategy.overlap else "")
