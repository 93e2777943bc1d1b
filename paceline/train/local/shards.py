"""The shards of a server, as the server sees them: told what to make, and waited for before a version is published.

Whatever becomes of one in between, its piece can be made again: it is written beside the version there is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from paceline.strategy.instructions import Apply
from paceline.strategy.server import Given
from paceline.train.local import shard_orders
from paceline.train.local.doorbell import Doorbell
from paceline.train.local.memory import Memory
from paceline.train.local.settings import Settings
from paceline.train.local.words import LINE, Shard

LOOK_UP_S = 0.2
_COUNT_BITS = 40


class Shards:
    def __init__(self, memory: Memory, settings: Settings, bell: Doorbell, beat: Callable[[], None]) -> None:
        """`bell` is the server's, which shows with `beat` that it is alive while it waits."""
        self.memory, self.words, self.bell, self.beat = memory, memory.shards, bell, beat
        self.bells = [shard_bell(memory, settings, number) for number in range(1, memory.sizes.shards)]
        self.order = settings.life << _COUNT_BITS
        """Counts orders. What a shard does for a server that is dead is not taken for what its successor asks for."""

    def begin(self, order: Apply, given: Sequence[Given]) -> None:
        self.order += 1
        self.words[Shard.ORDER] = 0
        shard_orders.write(self.memory, order, given)
        self.words[Shard.ORDER] = self.order
        for bell in self.bells:
            bell.ring()

    def wait(self) -> None:
        """Until every shard has made its piece; one that died has a successor, which does."""
        while not self._are_done():
            self.bell.lie_down()
            if self._are_done():
                self.bell.get_up()
                return
            self.bell.sleep(LOOK_UP_S)
            self.beat()

    def _are_done(self) -> bool:
        done = self.words[LINE + Shard.DONE :: LINE]
        return all(order == self.order for order in done)


def shard_bell(memory: Memory, settings: Settings, number: int, parent: int | None = None) -> Doorbell:
    """Of shard 1, 2, …: its place is after the launcher's."""
    return Doorbell(memory, settings.workers + 1 + number, settings.wake_shards[number - 1], parent)
