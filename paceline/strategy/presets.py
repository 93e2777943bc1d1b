"""The published strategies by name, and how a strategy is found: by preset or as the user's own `module:name`."""

from __future__ import annotations

from typing import Any

from paceline import user_code
from paceline.errors import StrategyError, a_type, nearest
from paceline.strategy.strategy import Strategy

PRESETS: dict[str, Strategy] = {
    s.name: s
    for s in (
        Strategy("sync"),
        Strategy("towers"),
        Strategy("downpour", groups=None, overlap=True, local_step=True),
        Strategy("delay-compensated", groups=None, correction="adaptive:2"),
        Strategy("mixed", groups=2),
        Strategy("stale-sync", groups=None, staleness_bound=2),
        Strategy("staleness-aware", groups=None, correction="staleness"),
        Strategy("softsync", groups=None, overlap=True, softsync_n=1, correction="staleness"),
        Strategy("backup", backup_workers=1),
        Strategy("local-sgd", exchange="delta", fetch_every=10, push_every=10, server_optimizer="sgd:1"),
        Strategy("diloco", exchange="delta", fetch_every=500, push_every=500, server_optimizer="nesterov:0.7"),
        Strategy(
            "streaming-diloco",
            exchange="delta",
            fetch_every=25,
            push_every=25,
            server_optimizer="nesterov:0.7",
            overlap=True,
            fragments=4,
            overlap_steps=5,
            mixing=0.5,
        ),
        Strategy("easgd", groups=None, exchange="elastic:0.9", fetch_every=0, push_every=10, server_optimizer="sgd:1"),
        Strategy("compressed", groups=None, exchange="topk:0.01"),
        Strategy("quantised", groups=None, exchange="int8"),
        Strategy("deep-compression", exchange="momentum-topk:0.01", server_optimizer="sgd"),
    )
}
"""`towers` is `sync` under the name of the study that reports every worker's own accuracy."""


def find_strategy(name: str | Strategy, **changes: Any) -> Strategy:
    """A built-in strategy (see `paceline.strategies`), or the user's `module:name`, with some of its fields replaced.

    >>> paceline.find_strategy("local-sgd", push_every=20).push_every
    20
    """
    if isinstance(name, Strategy):
        return name.with_changes(**changes)
    if not isinstance(name, str):
        raise StrategyError(f"strategy={name!r:.60} should be a name, module:name, or a Strategy")
    if ":" in name:
        found = user_code.find(name)
        found = found if isinstance(found, Strategy) or not callable(found) else user_code.call(name)
        if not isinstance(found, Strategy):
            raise StrategyError(f"{name} is {a_type(found)}; it should be a paceline Strategy, or return one")
        return found.with_changes(**changes)
    if name not in PRESETS:
        raise StrategyError(f"no strategy {name!r}: {nearest(name, PRESETS, or_custom=True)}")
    return PRESETS[name].with_changes(**changes)
