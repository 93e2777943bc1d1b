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
    from paceline.simulation.virtual_cluster import VirtualCluster
    from paceline.strategy.strategy import Strategy
    from paceline.training.distributing import DriverWords
    from paceline.training.run import Run
    from paceline.training.watcher import Watcher
    from paceline.workload import Workload


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

    def given(self) -> list[str]:
        """The options that were given, as they are written."""
        changed = [f.name for f in dataclasses.fields(self) if getattr(self, f.name) not in (f.default, [], None)]
        return [f"--{name.replace('_', '-')}" for name in changed]

    @property
    def named(self) -> bool:
        """Whether a strategy follows from what was given; workers alone are synchronous ones."""
        return self.strategy is not None or self.workers is not None or self.groups is not None

    def build(self) -> tuple[Strategy, int]:
        """The strategy, and how many workers carry it out."""
        from paceline.training.distributing import StrategyWords

        given = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "strategy_set"}
        if self.strategy is None:
            del given["strategy"]
        return StrategyWords(**given, fields=_fields(self.strategy_set or [])).build()


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

    def words(self) -> dict[str, str]:
        from paceline.training.distributing import ClusterWords

        return ClusterWords(**vars(self)).words()

    def build(self) -> VirtualCluster:
        from paceline.training.distributing import ClusterWords

        return ClusterWords(**vars(self)).build()


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

    def given(self) -> list[str]:
        return [f"--{name.replace('_', '-')}" for name in self.names()]

    def names(self) -> list[str]:
        """The fields that were given."""
        return [f.name for f in dataclasses.fields(self) if getattr(self, f.name) != f.default]

    def words(self) -> DriverWords:
        """Checked, with the usual values where nothing was given."""
        from paceline.training.distributing import DriverWords

        return DriverWords(**{name: value for name, value in vars(self).items() if value is not None})


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
            raise StrategyError(
                "--measure samples real workers from the beginning of a run: it needs --driver local and a new run"
            )
        words = self.driver.words()
        given = [*self.strategy.given(), *(f"--{word}" for word in self.cluster.words())]
        if resuming:
            given += ["--driver"] if self.driver.driver is not None else []
            given += ["--record-events"] if self.driver.record_events else []
            if given:
                raise StrategyError(f"{given[0]} is for new runs: a resumed one continues as it was")
            return
        if not self.strategy.named:
            first = [*given, *self.driver.given()][0]
            raise StrategyError(f"{first} needs --workers or a --strategy, as --strategy downpour")
        _, workers = self.strategy.build()
        self.cluster.build().check(workers)
        if words.driver == "local" and self.cluster.words():
            option = next(iter(self.cluster.words()))
            raise StrategyError(f"--{option} is simulated: it needs --driver virtual")
        if words.driver == "virtual":
            self._check_simulated()

    def _check_simulated(self) -> None:
        from paceline.training.distributing import REAL_ONLY

        for name in REAL_ONLY:
            if getattr(self.driver, name) is not None:
                raise StrategyError(f"--{name.replace('_', '-')} is for real workers: it needs --driver local")

    def continues(self, directory: Path) -> bool:
        """Whether a run to be resumed is one of several processes."""
        from paceline.training.drivers.local import launcher

        found = launcher.is_distributed(directory)
        if not found and self.driver.given():
            raise StrategyError(
                f"{self.driver.given()[0]} is for distributed runs, and the one in {directory} is of one process"
            )
        return found

    def resume(self, directory: Path, changes: dict[str, Any], watcher: Watcher, **options: Any) -> Run:
        from paceline.training.drivers.local import launcher

        shared = ("cache", "progress", "checkpoint_every_s")
        kept: dict[str, Any] = {key: value for key, value in options.items() if key in shared}
        kept |= self.driver.words().options(resuming=True, given=self.driver.names())
        return launcher.resume(directory, changes=changes, watcher=watcher, **kept)

    def run(self, workload: Workload, out: Path, watcher: Watcher, **options: Any) -> Run:
        """Trains with the driver asked for; `options` are those of every run: cache, progress, checkpoint_every_s."""
        self.check()
        strategy, workers = self.strategy.build()
        words = self.driver.words()
        shared: dict[str, Any] = {
            "workers": workers, "out": out, "watcher": watcher, "cache": options.get("cache"),
            "progress": options.get("progress"), **words.options(),
        }  # fmt: skip
        if words.driver == "virtual":
            from paceline.training.virtual_run import run_virtual

            return run_virtual(workload, strategy, cluster=self.cluster.build(), **shared)
        from paceline.training.drivers.local import launcher

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
