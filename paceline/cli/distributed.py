"""The options that say how training is distributed; `train` and `simulate` share them."""

from __future__ import annotations

import dataclasses
import typing
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from paceline.errors import StrategyError, nearest


@dataclass(frozen=True)
class StrategyOptions:
    """Fields are options of the command line, in words as they were given."""

    strategy: Annotated[
        str | None,
        typer.Option(metavar="NAME|module:name", help="sync, downpour, … or a custom one."),
    ] = None
    workers: Annotated[int | None, typer.Option(help="How many workers; without --strategy synchronous ones.")] = None
    groups: Annotated[str | None, typer.Option(metavar="GxK", help="G synchronous groups of K workers.")] = None
    exchange: Annotated[
        str | None, typer.Option(help="What workers push: gradient, delta, topk:0.01, int8, … or module:name.")
    ] = None
    correction: Annotated[
        str | None, typer.Option(help="Of late payloads: constant:0.04, adaptive:2, staleness or module:name.")
    ] = None
    fetch_every: Annotated[int | None, typer.Option(help="Steps between two fetches.")] = None
    push_every: Annotated[int | None, typer.Option(help="Steps between two pushes.")] = None
    server_optimizer: Annotated[
        str | None, typer.Option(help="adagrad:0.5, torch.optim:RAdam or module:name, each with :RATE if wanted.")
    ] = None
    staleness_bound: Annotated[
        int | None, typer.Option(help="How many pushes a worker may be ahead of the slowest.")
    ] = None
    backup_workers: Annotated[int | None, typer.Option(help="Workers a synchronous step does not wait for.")] = None
    period: Annotated[int | None, typer.Option(help="Local steps between two exchanges of parameters.")] = None
    strategy_set: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Any other field of a strategy.")
    ] = None

    def settings(self) -> dict[str, Any]:
        """What was given, by the names that Python has for it."""
        given = given_of(self)
        fields = _fields(given.pop("strategy_set", []))
        if twice := sorted(given.keys() & fields.keys()):
            raise StrategyError(f"{twice[0]} is given twice: as an option and with --strategy-set {twice[0]}")
        return {**given, **fields}


@dataclass(frozen=True)
class ClusterOptions:
    """What a virtual cluster is like."""

    compute_time: Annotated[
        str | None,
        typer.Option(help="Time of a step: constant:S, gamma:100:0.01, pareto:SHAPE:MEAN, recorded:FILE, …"),
    ] = None
    server_time: Annotated[str | None, typer.Option(help="Time of the server per payload.")] = None
    network_time: Annotated[str | None, typer.Option(help="Time of a message besides latency and bandwidth.")] = None
    bandwidth: Annotated[float | None, typer.Option(help="Bandwidth of the server's link, bytes per second.")] = None
    latency: Annotated[float | None, typer.Option(help="Latency of a message, seconds.")] = None
    speeds: Annotated[str | None, typer.Option(help="Speeds of worker 0, 1, …: 1,1,0.5.")] = None
    change: Annotated[
        list[str] | None, typer.Option(metavar="WORKER:WHAT:S", help="A worker dies, joins or leaves, as 3:dies:20.")
    ] = None
    mean_life: Annotated[float | None, typer.Option(help="Mean seconds until a worker dies at random.")] = None
    restart: Annotated[float | None, typer.Option(help="Seconds from a death to the restart.")] = None

    def settings(self) -> dict[str, Any]:
        return given_of(self)


@dataclass(frozen=True)
class DriverOptions:
    driver: Annotated[str | None, typer.Option(help="local (processes) or virtual (simulated).")] = None
    on_bad_gradient: Annotated[str | None, typer.Option(help="Non-finite payloads: stop, or skip them.")] = None
    record_events: Annotated[bool, typer.Option("--record-events", help="Keep what a replay needs.")] = False
    validate_every: Annotated[
        str | None, typer.Option(metavar="INTERVAL", help="1epoch (the default), 500updates or 30s.")
    ] = None
    collective: Annotated[str | None, typer.Option(help="Of a group: auto, shared, nccl or gloo.")] = None
    server_threads: Annotated[
        int | None, typer.Option(help="Threads of the server process that make an update together.")
    ] = None
    stopped_timeout: Annotated[float | None, typer.Option(help="Seconds until a stopped process is replaced.")] = None
    idle_timeout: Annotated[float | None, typer.Option(help="Seconds without progress or CPU time; 120.")] = None
    busy_timeout: Annotated[float | None, typer.Option(help="Seconds without progress while computing; 3600.")] = None
    start_timeout: Annotated[float | None, typer.Option(help="Seconds that a worker may take to start; 600.")] = None

    def settings(self) -> dict[str, Any]:
        return given_of(self)


def given_of(options: Any) -> dict[str, Any]:
    """The options that were given."""
    fields = dataclasses.fields(options)
    return {f.name: value for f in fields if (value := getattr(options, f.name)) not in (f.default, [], None)}


def _fields(pairs: list[str]) -> dict[str, Any]:
    """`KEY=VALUE` words as fields of a strategy."""
    from paceline.strategy.strategy import Strategy

    hints = typing.get_type_hints(Strategy)
    found: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        name = key.strip().replace("-", "_")
        if not equals or name not in hints:
            known = nearest(name, [n for n in hints if n != "name"])
            raise StrategyError(f"--strategy-set {pair!r} should be KEY=VALUE with a field of a strategy: {known}")
        found[name] = _read(pair, hints[name], value.strip())
    return found


def _read(pair: str, kind: Any, text: str) -> Any:
    kinds = typing.get_args(kind) or (kind,)
    try:
        if text.lower() == "none" and type(None) in kinds:
            return None
        if bool in kinds:
            return {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}[text.lower()]
        return next(k for k in kinds if k is not type(None))(text)
    except (ValueError, KeyError):
        what = {bool: "true or false", int: "a whole number", float: "a number"}.get(kinds[0], "text")
        raise StrategyError(f"--strategy-set {pair!r} should be {what}") from None
