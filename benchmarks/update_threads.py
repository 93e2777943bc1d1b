"""How long an update of a large network takes the server, with one thread and with several."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

import torch

from paceline.step.optimizers import Rule
from paceline.strategy.gradient_mean import GroupContribution, Payload
from paceline.strategy.instructions import Apply, Compute, Contribution
from paceline.strategy.layout import Layout, PhaseLayout
from paceline.strategy.presets import find_strategy
from paceline.strategy.updater import Updater

WAYS = {
    "downpour, sgd": ("downpour", "sgd"),
    "downpour, adam": ("downpour", "adam"),
    "delay-compensated, sgd": ("delay-compensated", "sgd"),
    "compressed, sgd": ("compressed", "sgd"),
    "quantised, sgd": ("quantised", "sgd"),
}


def update_maker(way: str, numbers: int, threads: int) -> Callable[[], float]:
    """Makes one update into other memory, as the server does, and returns its seconds."""
    name, optimizer = WAYS[way]
    strategy = find_strategy(name)
    layout = Layout((PhaseLayout(Rule(optimizer, 1e-3), (("all", (numbers,)),)),), 0, 1, 1, "float32")
    updater = Updater(strategy, layout, 1, threads)
    buffers = [torch.zeros(numbers) for _ in range(2)]
    states = [updater.initial_state() for _ in range(2)]
    kept = [updater.initial_correction_state() for _ in range(2)]
    payload = torch.randn(updater.encoded) * 1e-3
    if not updater.exchange.is_dense:
        payload.zero_()  # whatever bits: zeros are valid in every encoding
    fetched = torch.zeros(numbers) if updater.needs_fetched else None
    made = 0

    def seconds() -> float:
        nonlocal made
        before, after = made % 2, (made + 1) % 2
        made += 1
        task = Compute(0, made, 0, (0,), (0,))
        order = Apply(made, (Contribution(0, (task,), 1),), 0, 0)
        given = GroupContribution([Payload(payload, 64, 1)], fetched, kept[before], kept[after])
        start_s = perf_counter()
        updater.apply(order, [given], buffers[before], buffers[after], states[before], states[after])
        return perf_counter() - start_s

    return seconds


def update_times(way: str, numbers: int, threads: tuple[int, ...], repeats: int) -> dict[int, list[float]]:
    """Seconds of updates by number of threads, in turn."""
    usual = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        makers = {count: update_maker(way, numbers, count) for count in threads}
        found: dict[int, list[float]] = {count: [] for count in threads}
        for number in range(repeats + 2):
            for count, make in makers.items():
                took_s = make()
                if number >= 2:  # the first two touch the memory
                    found[count].append(took_s)
        return found
    finally:
        torch.set_num_threads(usual)
