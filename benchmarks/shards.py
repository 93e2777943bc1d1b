"""How long the local server takes for an update of a large network, alone and with shards in processes beside it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from time import monotonic_ns, perf_counter, sleep

import torch

from paceline.step.optimizers import Rule
from paceline.strategy.instructions import Apply, Compute, Contribution
from paceline.strategy.layout import Layout, PhaseLayout
from paceline.strategy.pieces import pieces_of
from paceline.strategy.server import Server
from paceline.strategy.strategy import preset
from paceline.train.local.crew import Patience
from paceline.train.local.doorbell import Doorbell
from paceline.train.local.memory import Memory
from paceline.train.local.preparation import eventfd, sizes_of
from paceline.train.local.settings import Settings
from paceline.train.local.shard_crew import ShardCrew
from paceline.train.local.shards import Shards
from paceline.train.local.span_log import SpanLog
from paceline.train.local.updating import Updating
from paceline.train.local.words import Of, Payload
from paceline.workload import Workload

WAYS = {
    "downpour, sgd": ("downpour", "sgd"),
    "downpour, adam": ("downpour", "adam"),
    "delay-compensated, sgd": ("delay-compensated", "sgd"),
}


class UpdateMaker:
    """A server without its workers: the same payload is applied again and again."""

    def __init__(self, memory: Memory, settings: Settings, opened: ExitStack) -> None:
        self.version = 0
        shards = None
        if memory.sizes.shards > 1:
            crew = ShardCrew(memory, settings, Patience(), lambda *_: None)
            opened.callback(lambda: [child.kill() for child in crew.children.values()])
            crew.start()
            while not crew.complete:
                crew.look(monotonic_ns())
                sleep(0.01)
            shards = Shards(memory, settings, Doorbell(memory, 1, settings.wake_server), lambda: None)
        server = Server(settings.strategy, settings.layout, 1, pieces_of(settings.layout, memory.sizes.shards)[0])
        self.updating = Updating(memory, server, None, SpanLog(memory, 1), 1, shards)
        memory.slots[Of.PAYLOAD + Payload.SAMPLES] = 64

    def seconds(self) -> float:
        """Of one update."""
        self.version += 1
        task = Compute(0, 2, 0, (0,), (0,), None)
        order = Apply(self.version, (Contribution(0, ((0, 2),), 1),), 0, 0)
        start_s = perf_counter()
        self.updating.make(order, {(0, 2): task})
        return perf_counter() - start_s


@contextmanager
def update_maker(way: str, numbers: int, shards: int) -> Iterator[UpdateMaker]:
    name, optimizer = WAYS[way]
    strategy = preset(name)
    layout = Layout((PhaseLayout(numbers, Rule(optimizer, 1e-3)),), 0, 1, 1, "float32")
    sizes = sizes_of(strategy, layout, 1, record_events=False, on_cpu=False, shards=shards)
    with ExitStack() as opened:
        memory = Memory(sizes)
        opened.callback(memory.close)
        bells = [eventfd() for _ in range(2 + shards)]
        for bell in bells:
            opened.callback(os.close, bell)
        settings = Settings(
            parent=os.getpid(), memory=memory.descriptor, wake_launcher=bells[0], wake_server=bells[1],
            wake_workers=(bells[2],), wake_shards=tuple(bells[3:]), sizes=sizes, strategy=strategy, layout=layout,
            workload=Workload(), workers=1, threads=1, number=1, life=1, device="cpu", cache="", search_path=(),
            on_bad_gradient="stop",
        )  # fmt: skip
        memory.payloads[0][0].normal_(std=1e-3)
        yield UpdateMaker(memory, settings, opened)


def update_times(way: str, numbers: int, shards: tuple[int, ...], repeats: int) -> dict[int, list[float]]:
    """Seconds of updates by number of shards, in turn, one thread a process."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with ExitStack() as opened:
            makers = {count: opened.enter_context(update_maker(way, numbers, count)) for count in shards}
            found: dict[int, list[float]] = {count: [] for count in shards}
            for number in range(repeats + 2):
                for count, maker in makers.items():
                    took_s = maker.seconds()
                    if number >= 2:  # the first two touch the memory
                        found[count].append(took_s)
            return found
    finally:
        torch.set_num_threads(before)
