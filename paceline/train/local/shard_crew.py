"""The processes that are shards of the server, as the launcher has them: started, watched and replaced like others."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from paceline.errors import PacelineError
from paceline.train.local.child import DEATHS, Child, failure
from paceline.train.local.memory import Memory
from paceline.train.local.settings import Settings
from paceline.train.local.words import LINE, Shard

if TYPE_CHECKING:
    from paceline.train.local.crew import Patience

SHARD = "paceline.train.local.shard_process"
Note = Callable[[str, int | None, str], None]
"""What happened, to which worker if to one, and how."""


class ShardCrew:
    """Shards are counted from 1; the server itself, which is the first, is not among these."""

    def __init__(self, memory: Memory, settings: Settings, patience: Patience) -> None:
        self.memory, self.settings, self.patience = memory, settings, patience
        self.children: dict[int, Child] = {}
        self.lives = [0] * memory.sizes.shards
        self.started_ns = [0] * memory.sizes.shards
        self.done_at_start = [0] * memory.sizes.shards
        self.fruitless = [0] * memory.sizes.shards
        """Lives in a row that ended without a piece of an update."""

    def start(self) -> None:
        for number in range(1, self.memory.sizes.shards):
            self._start(number)

    def _start(self, number: int) -> None:
        self.lives[number] += 1
        self.started_ns[number] = time.monotonic_ns()
        self.done_at_start[number] = self._word(number, Shard.DONE)
        who = self.settings.workers + number
        self.memory.forget(who)
        self.children[number] = Child(
            SHARD, replace(self.settings, number=who, life=self.lives[number], threads=1, device="cpu")
        )

    def _word(self, number: int, which: int) -> int:
        return self.memory.shards[number * LINE + which]

    def is_working(self, number: int) -> bool:
        return self._word(number, Shard.READY) == self.lives[number]

    @property
    def complete(self) -> bool:
        return all(self.is_working(number) for number in self.children)

    def look(self, now_ns: int, note: Note) -> None:
        """Replaces who died or hangs; raises when that is no use. The server waits for who comes.

        `note` is not kept: whoever keeps its owner keeps the memory, after the run too.
        """
        for number, child in self.children.items():
            if child.ended():
                self._ended(number, note, child.how_it_ended())
                continue
            limit_s = self.patience.worker_s if self.is_working(number) else self.patience.start_s
            beat_ns = max(self._word(number, Shard.BEAT), self.started_ns[number])
            if (now_ns - beat_ns) / 1e9 > limit_s:
                child.kill()
                self._ended(number, note, f"was silent for more than {limit_s:g} s", "shard hung")

    def _ended(self, number: int, note: Note, how: str, what: str = "shard died") -> None:
        name = f"shard {number} of the server"
        told = self.memory.told(self.settings.workers + number)
        if told:
            raise failure(f"{name}: {told}", self.children[number].process.returncode)
        stuck = self._word(number, Shard.DONE) == self.done_at_start[number]
        self.fruitless[number] = self.fruitless[number] + 1 if stuck else 0
        if self.fruitless[number] >= DEATHS:
            raise PacelineError(f"{name} {how}, {DEATHS} times in a row without its piece of an update")
        note(what, None, f"{name} {how}")
        self._start(number)
