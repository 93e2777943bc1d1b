"""The options that say how training is distributed; `train` and `simulate` share them."""

from __future__ import annotations

import dataclasses
import typing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paceline.errors import StrategyError, nearest

if TYPE_CHECKING:
    from paceline.simulate.virtual_cluster import VirtualCluster
    from paceline.strategy.strategy import Strategy
    from paceline.train.run import Run
    from paceline.train.watcher import Watcher
    from paceline.workload import Workload


@dataclass(frozen=True)
class StrategyOptions:
    """Fields are options of the command line, in words as they were given."""

    strategy: Annotated[
        str | None, typer.Option(help="sync, towers, downpour, delay-compensated, mixed, stale-sync, …")
    ] = None
    workers: Annotated[int | None, typer.Option(help="How many workers.")] = None
    groups: Annotated[str | None, typer.Option(metavar="GxK", help="G synchronous groups of K workers.")] = None
    compensation: Annotated[str | None, typer.Option(help="Of delay: constant:0.04 or adaptive:2.")] = None
    correction: Annotated[str | None, typer.Option(help="Of late payloads: also staleness, module:function.")] = None
    fetch_every: Annotated[int | None, typer.Option(help="Steps between two fetches.")] = None
    push_every: Annotated[int | None, typer.Option(help="Steps between two pushes.")] = None
    server_optimizer: Annotated[str | None, typer.Option(help="NAME[:RATE], as adagrad:0.5.")] = None
    bound: Annotated[int | None, typer.Option(help="How far a worker may be ahead of the slowest.")] = None
    spares: Annotated[int | None, typer.Option(help="Workers a synchronous step does not wait for.")] = None
    period: Annotated[int | None, typer.Option(help="Local steps between two exchanges of parameters.")] = None
    strategy_set: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Any other field of a strategy.")
    ] = None

    def given(self) -> list[str]:
        """The options that were given, as they are written."""
        changed = [f.name for f in dataclasses.fields(self) if getattr(self, f.name) not in (f.default, [], None)]
        return [f"--{name.replace('_', '-')}" for name in changed]

    def build(self) -> tuple[Strategy, int]:
        """The strategy, and how many workers carry it out."""
        from paceline.train.distributing import StrategyWords

        if self.strategy is None:
            raise StrategyError(f"{self.given()[0]} needs a --strategy, as --strategy downpour")
        given = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "strategy_set"}
        return StrategyWords(**given, fields=_fields(self.strategy_set or [])).build()


@dataclass(frozen=True)
class ClusterOptions:
    """What a virtual cluster is like."""

    compute_time: Annotated[
        str | None, typer.Option(help="Of a step: constant:S, gamma:100:0.01, pareto:SHAPE:MEAN, recorded:FILE, …")
    ] = None
    server_time: Annotated[str | None, typer.Option(help="Of the server, for each payload.")] = None
    network_time: Annotated[str | None, typer.Option(help="Of a message, beside latency and bandwidth.")] = None
    bandwidth: Annotated[float | None, typer.Option(help="Of the server's link, bytes a second.")] = None
    latency: Annotated[float | None, typer.Option(help="Of a message, seconds.")] = None
    speeds: Annotated[str | None, typer.Option(help="Of worker 0, 1, …: 1,1,0.5.")] = None
    change: Annotated[
        list[str] | None, typer.Option(metavar="WORKER:WHAT:S", help="A worker dies, joins or leaves, as 3:dies:20.")
    ] = None
    mean_life: Annotated[float | None, typer.Option(help="Workers die at random after so many seconds.")] = None
    restart: Annotated[float | None, typer.Option(help="Seconds from a death to the next life.")] = None

    def words(self) -> dict[str, str]:
        from paceline.train.distributing import ClusterWords

        return ClusterWords(**vars(self)).words()

    def build(self) -> VirtualCluster:
        from paceline.train.distributing import ClusterWords

        return ClusterWords(**vars(self)).build()


@dataclass(frozen=True)
class DriverOptions:
    driver: Annotated[str | None, typer.Option(help="local (processes) or virtual (simulated).")] = None
    on_bad_gradient: Annotated[str | None, typer.Option(help="stop, or skip what is no number.")] = None
    record_events: Annotated[bool, typer.Option("--record-events", help="Keep what a replay needs.")] = False
    worker_timeout: Annotated[float | None, typer.Option(help="Seconds after which a worker counts as hung.")] = None
    collective: Annotated[str | None, typer.Option(help="Of a group: auto, shared, nccl or gloo.")] = None
    shards: Annotated[int | None, typer.Option(help="Processes of the server that share every update.")] = None

    def given(self) -> list[str]:
        changed = [f.name for f in dataclasses.fields(self) if getattr(self, f.name) != f.default]
        return [f"--{name.replace('_', '-')}" for name in changed]


@dataclass(frozen=True)
class Distributed:
    """Everything about distribution that `train` was given."""

    strategy: StrategyOptions
    cluster: ClusterOptions
    driver: DriverOptions

    @property
    def asked_for(self) -> bool:
        """Whether anything of it was given."""
        return bool(self.strategy.given() or self.cluster.words() or self.driver.given())

    def check(self, *, resuming: bool = False, measuring: bool = False) -> None:
        """Says what is wrong before anything is loaded."""
        if measuring and (resuming or self.driver.driver == "virtual"):
            raise StrategyError("--measure looks at real workers, from the beginning of a run: it needs --driver local")
        from paceline.strategy.pieces import check_shards
        from paceline.strategy.refusals import check_policy
        from paceline.train.distributing import check_driver

        if self.driver.on_bad_gradient is not None:
            check_policy(self.driver.on_bad_gradient)
        if resuming:
            said = [*self.strategy.given(), *(f"--{word}" for word in self.cluster.words())]
            said += ["--driver"] if self.driver.driver is not None else []
            said += ["--record-events"] if self.driver.record_events else []
            if said:
                raise StrategyError(f"{said[0]} is for new runs: a resumed one goes on as it was")
            return
        driver = self.driver.driver or "local"
        check_driver(driver)
        if self.strategy.strategy is None:
            given = [*self.strategy.given(), *(f"--{w}" for w in self.cluster.words()), *self.driver.given()]
            raise StrategyError(f"{given[0]} needs a --strategy, as --strategy downpour")
        strategy, workers = self.strategy.build()
        self.cluster.build().check(workers)
        if self.driver.shards is not None:
            if driver == "virtual":
                raise StrategyError("--shards are processes of a real server: they need --driver local")
            check_shards(self.driver.shards, strategy)
        if driver == "local" and self.cluster.words():
            option = next(iter(self.cluster.words()))
            raise StrategyError(f"--{option} is simulated: it needs --driver virtual")
        if driver == "virtual" and self.driver.collective is not None:
            raise StrategyError("--collective is for real workers: it needs --driver local")
        if driver == "virtual" and self.driver.worker_timeout is not None:
            raise StrategyError("--worker-timeout is for real workers: it needs --driver local")

    def goes_on(self, directory: Path) -> bool:
        """Whether a run to be resumed is one of several processes."""
        from paceline.train.local import launcher

        found = launcher.is_distributed(directory)
        if not found and self.driver.shards is not None:
            raise StrategyError(f"--shards are processes of a server, which the run in {directory} does not have")
        if not found and self.driver.collective is not None:
            raise StrategyError(f"--collective is for groups of workers, and {directory} is of a run in one process")
        return found

    def resume(self, directory: Path, changes: dict[str, Any], watcher: Watcher, **options: Any) -> Run:
        from paceline.train.local import launcher

        shared = ("cache", "progress", "checkpoint_every_s")
        kept: dict[str, Any] = {key: value for key, value in options.items() if key in shared}
        if self.driver.worker_timeout is not None:
            kept["worker_timeout_s"] = self.driver.worker_timeout
        if self.driver.shards is not None:
            kept["shards"] = self.driver.shards
        if self.driver.collective is not None:
            kept["collective"] = self.driver.collective
        bad = self.driver.on_bad_gradient or "stop"
        return launcher.resume(directory, changes=changes, watcher=watcher, on_bad_gradient=bad, **kept)

    def run(self, workload: Workload, out: Path, watcher: Watcher, **options: Any) -> Run:
        """Trains with the driver asked for; `options` are those of every run: cache, progress, checkpoint_every_s."""
        self.check()
        strategy, workers = self.strategy.build()
        shared: dict[str, Any] = {
            "workers": workers, "out": out, "watcher": watcher, "record_events": self.driver.record_events,
            "on_bad_gradient": self.driver.on_bad_gradient or "stop", "cache": options.get("cache"),
            "progress": options.get("progress"),
        }  # fmt: skip
        if self.driver.driver == "virtual":
            from paceline.train.virtual_run import run_virtual

            return run_virtual(workload, strategy, cluster=self.cluster.build(), **shared)
        from paceline.train.local import launcher

        if self.driver.worker_timeout is not None:
            shared["worker_timeout_s"] = self.driver.worker_timeout
        if self.driver.shards is not None:
            shared["shards"] = self.driver.shards
        if self.driver.collective is not None:
            shared["collective"] = self.driver.collective
        if "checkpoint_every_s" in options:
            shared["checkpoint_every_s"] = options["checkpoint_every_s"]
        if options.get("measuring"):
            shared["measure"] = out / "measure"
        return launcher.run(workload, strategy, **shared)


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
