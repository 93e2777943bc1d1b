"""Rounds of synchronous groups: each lasts as long as its slowest member, and then as long as the exchange."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, eq=False)
class RoundTimes:
    """One round of a group, in seconds since it began; arrays have one entry per member."""

    begins_s: Any
    ends_s: Any
    """When each member has computed."""
    exchanges_s: float
    """When the exchange begins, of those that have computed by then."""


class GroupRounds:
    """How long a group's next round takes, as a `Duration` of the virtual driver whose workers are groups.

    A member takes `steps` steps per round, each `mean_s` with a deviation of `variation` times that. A round does not
    wait for `backup_workers` of them: a late one finishes its step in vain and begins the next round late.
    `watch` is called with every round of a group.
    """

    def __init__(
        self,
        members: int,
        steps: int,
        mean_s: float,
        variation: float,
        exchange_s: float,
        *,
        backup_workers: int = 0,
        seed: int = 0,
        watch: Callable[[int, RoundTimes], None] | None = None,
    ) -> None:
        self.watch = watch
        self.members, self.steps, self.mean_s, self.variation = members, steps, mean_s, variation
        self.exchange_s, self.backup_workers, self.seed = exchange_s, backup_workers, seed
        self.rounds = 0
        self.seconds = 0.0
        """Total duration of all rounds, exchanges included."""
        self.computing_s = 0.0
        """Total computing time of all members."""
        self.straggling_s = 0.0
        """Total time that members waited for slower ones."""
        self._generators: dict[int, np.random.Generator] = {}
        self._late_s: dict[int, Any] = {}

    def __call__(self, group: int, number: int) -> float:
        takes_s = self._drawn(group)
        late_s = self._late_s.get(group, 0.0)
        ends_s = takes_s + late_s
        if self.backup_workers:
            last = self.members - self.backup_workers - 1
            round_s = float(np.partition(ends_s, last)[last])
            self._late_s[group] = np.maximum(ends_s - round_s - self.exchange_s, 0.0)
        else:
            round_s = float(ends_s.max())
        if self.watch is not None:
            self.watch(group, RoundTimes(np.broadcast_to(late_s, ends_s.shape), ends_s, round_s))
        self.rounds += 1
        self.seconds += round_s + self.exchange_s
        self.computing_s += float(takes_s.sum())
        self.straggling_s += float(np.maximum(round_s - ends_s, 0.0).sum())
        return round_s + self.exchange_s

    def _drawn(self, group: int) -> Any:
        if not self.variation:
            return np.full(self.members, self.steps * self.mean_s)
        if group not in self._generators:
            self._generators[group] = np.random.default_rng([5, self.seed, group])
        shape = 1 / self.variation**2
        return self._generators[group].gamma(self.steps * shape, self.mean_s / shape, self.members)
