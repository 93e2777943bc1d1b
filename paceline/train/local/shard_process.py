"""A shard of the server: `python -m paceline.train.local.shard_process SETTINGS`, started by the launcher.

It makes its piece of every version when the server says so, from the same payloads, with the same operations. It keeps
nothing between two orders, so whoever replaces it does the last one again.
"""

from __future__ import annotations

import gc
import sys
import time

from paceline.strategy.instructions import Apply
from paceline.strategy.pieces import pieces_of
from paceline.strategy.server import Given, Server
from paceline.train.local import shard_orders
from paceline.train.local.child import as_child
from paceline.train.local.doorbell import Doorbell
from paceline.train.local.memory import Memory
from paceline.train.local.settings import Settings
from paceline.train.local.shards import LOOK_UP_S, shard_bell
from paceline.train.local.span_log import UPDATE, SpanLog
from paceline.train.local.words import LINE, Shard


class ShardLoop:
    def __init__(self, settings: Settings, memory: Memory) -> None:
        self.settings, self.memory = settings, memory
        number = settings.number - settings.workers
        self.order_words, self.words = memory.shards, memory.shards[number * LINE : (number + 1) * LINE]
        self.bell = shard_bell(memory, settings, number, settings.parent)
        self.bell_of_server = Doorbell(memory, settings.workers, settings.wake_server)
        self.bell_of_launcher = Doorbell(memory, settings.workers + 1, settings.wake_launcher)
        self.spans = SpanLog(memory, settings.number)
        piece = pieces_of(settings.layout, memory.sizes.shards)[number]
        self.server = Server(settings.strategy, settings.layout, settings.workers, piece)

    def serve(self) -> None:
        """Until the launcher ends us."""
        self._beat()
        self.words[Shard.READY] = self.settings.life
        self.bell_of_launcher.ring()
        while True:
            self.bell.lie_down()
            if not self.look():
                self.bell.sleep(LOOK_UP_S)
            self._beat()

    def look(self) -> bool:
        """Carries out the order, if there is a new one; whether there was."""
        number = self.order_words[Shard.ORDER]
        if number in (0, self.words[Shard.DONE]):
            return False
        self.bell.get_up()
        order, given = shard_orders.read(self.memory)
        if self.order_words[Shard.ORDER] != number:  # its server died, and the next one writes another
            return True
        self._carry_out(order, given)
        self.words[Shard.DONE] = number
        self.bell_of_server.ring()
        return True

    def _carry_out(self, order: Apply, given: list[Given]) -> None:
        start_ns, memory = time.monotonic_ns(), self.memory
        old, new = (order.update - 1) % 2, order.update % 2
        self.server.apply(
            order, given, memory.parameters[old], memory.parameters[new], memory.states[old], memory.states[new]
        )
        self.spans.add(UPDATE, start_ns, time.monotonic_ns())

    def _beat(self) -> None:
        self.words[Shard.BEAT] = time.monotonic_ns()


def main(settings: Settings) -> None:
    with as_child(settings) as memory:
        loop = ShardLoop(settings, memory)
        gc.collect()
        gc.freeze()
        loop.serve()


if __name__ == "__main__":
    main(Settings.of(sys.argv[1]))
