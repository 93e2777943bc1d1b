"""`paceline simulate`: how long a strategy takes on a cluster that need not exist, without computing gradients."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Annotated

import typer

from paceline.cli.console import JsonOption, check_json, console_for, hand_over
from paceline.cli.distributed import ClusterOptions, StrategyOptions
from paceline.cli.option_groups import takes

if TYPE_CHECKING:
    from rich.table import Table

    from paceline.simulate.time_record import TimeRecord
    from paceline.workload import Workload

EXAMPLE = "Example: paceline simulate dnn --strategy downpour --workers 1000 --steps 100 --compute-time gamma:100:0.01"


@takes(strategy=StrategyOptions, cluster=ClusterOptions)
def simulate(
    workload: Annotated[str, typer.Argument(help="As for train; its size is that of the messages.")],
    steps: Annotated[int, typer.Option(help="Steps a worker, in the mean.")] = 100,
    data: Annotated[str | None, typer.Option(help="Data source; its samples' shape is that of the network.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any other key of a workload.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Every random number follows from it.")] = 0,
    json: JsonOption = None,
    *,
    strategy: StrategyOptions,
    cluster: ClusterOptions,
) -> None:
    """Simulate a strategy's time, throughput, waiting and staleness."""
    from paceline.errors import StrategyError
    from paceline.record import dump
    from paceline.simulate.simulation import simulate_time
    from paceline.simulate.time_record import time_record
    from paceline.workload import parse_settings, resolve

    check_json(json)
    if strategy.strategy is None:
        raise StrategyError("name a --strategy to simulate, as --strategy downpour")
    rule, workers = strategy.build()
    simulated = cluster.build()
    given = {"seed": seed, **({"data": data} if data is not None else {})}
    resolved = resolve(workload, {**given, **parse_settings(settings or [])})
    bandwidth = simulated.network is not None and simulated.network.bandwidth < float("inf")
    message_bytes = _message_bytes(resolved) if bandwidth else 0
    start_s = perf_counter()
    found = simulate_time(rule, workers, steps, simulated, seed=seed, message_bytes=message_bytes)
    wall_s = perf_counter() - start_s
    made = time_record(resolved, cluster.words(), message_bytes, found.distribution, found.trace, wall_s)
    console_for(json).print(_table(made))
    hand_over(dump(made), json)


def _message_bytes(workload: Workload) -> int:
    """What a worker exchanges: parameters and buffers of floating point numbers."""
    from itertools import chain

    from paceline.step.build import build_network, load_data

    network = build_network(workload, load_data(workload))
    tensors = chain((p for p in network.parameters() if p.requires_grad), network.buffers())
    return sum(t.numel() * t.element_size() for t in tensors if t.is_floating_point())


def _table(made: TimeRecord) -> Table:
    from rich.table import Table

    found = made.distribution
    table = Table(show_header=False, box=None, pad_edge=False)
    share = "of the workers' time"
    for name, value in (
        ("strategy", f"{found.strategy.name}, {found.workers:,} workers"),
        ("virtual time", f"{made.seconds:,.6g} s"),
        ("steps", f"{made.steps:,}, {made.steps_per_s:,.6g} a second"),
        ("updates", f"{found.updates:,}, {made.updates_per_s:,.6g} a second"),
        ("waiting", f"{made.waiting_share:.2%} {share}"),
        ("communicating", f"{made.communicating_share:.2%} {share}"),
        ("server busy", f"{made.server_share:.2%} of the time"),
        ("staleness", f"mean {made.mean_staleness:.2f}, 99 % up to {made.staleness_p99}"),
        ("batches", _batches(made)),
        ("simulated in", f"{made.wall_s:.2f} s"),
    ):
        if value:
            table.add_row(name, value)
    return table


def _batches(made: TimeRecord) -> str:
    ledger = made.distribution.ledger
    counts = {"applied": ledger.applied, "dropped": ledger.dropped, "given out again": ledger.returned}
    return ", ".join(f"{count:,} {what}" for what, count in counts.items() if count or what == "applied")
