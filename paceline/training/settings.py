"""The settings beyond those of a workload and a strategy: how a training is distributed, simulated, carried out.

Importing this does not import PyTorch, so that the command line can explain every setting at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from paceline.errors import InputError, StrategyError
from paceline.settings import Setting, check, setting, settings_of
from paceline.strategy.strategy import DISTRIBUTED, DISTRIBUTION, MOST_WORKERS, Strategy
from paceline.training.port_range import parse_port_range
from paceline.training.validation_interval import parse_interval
from paceline.workload import DATA, STEPS, TUNE, Workload

CLUSTER, LIMITS, RUN = "Simulated cluster", "Faults and limits", "Run"
"""Panels of the help."""
KINDS = ("train", "measure", "simulate", "feed")
DRIVERS = ("auto", "local", "ray", "virtual")
COLLECTIVES = ("auto", "shared", "nccl", "gloo")
POLICIES = ("stop", "skip")
PIPELINE_SCHEDULES = ("1f1b", "gpipe")
SHARDINGS = ("none", "fsdp")
MICROBATCHES_PER_STAGE = 4
"""By default; a pipeline of k stages with 4 k micro-batches idles for about a fifth of the time."""
MOST_STAGES = 64
RUNS = {
    "alone": "training in one process, without a strategy",
    "local": 'driver = "local"',
    "ray": 'driver = "ray"',
    "virtual": 'driver = "virtual"',
    "simulate": 'kind = "simulate"',
    "measure": 'kind = "measure"',
    "feed": 'kind = "feed"',
}
"""The kinds of run that a setting may have an effect on, and how an error names them."""
RAY, REAL, SIMULATED = ("ray",), ("local", "ray"), ("virtual", "simulate")
BOTH = ("train", "simulate")


@dataclass(frozen=True)
class StrategySettings:
    """Which strategy, and how many workers carry it out."""

    COMMON: ClassVar[dict[str, Any]] = {"group": DISTRIBUTION, "verbs": BOTH, "runs": DISTRIBUTED}

    strategy: str = setting(
        "sync",
        "Distribution strategy: sync, downpour, local-sgd, … or a custom one.",
        verbs=(*BOTH, "predict"),
        metavar="NAME|module:name",
    )
    workers: int | None = setting(
        None,
        "Number of workers; 2 by default if a strategy is given. Without a strategy, several workers use sync.",
        least=1,
        most=MOST_WORKERS,
        verbs=(*BOTH, "predict"),
        several=("simulate",),
    )
    groups: str | int | None = setting(None, "G synchronous groups of K workers each.", metavar="GxK")
    period: int | None = setting(None, "Local steps between two exchanges of parameters.", least=1)

    def __post_init__(self) -> None:
        check(self, StrategyError)


@dataclass(frozen=True)
class ClusterSettings:
    """What a virtual cluster is like."""

    COMMON: ClassVar[dict[str, Any]] = {"group": CLUSTER, "verbs": BOTH, "runs": SIMULATED}

    compute_time: str | float | None = setting(
        None,
        "Time per step: SECONDS, gamma:SHAPE:SCALE, pareto:SHAPE:MEAN, lognormal:SIGMA:MEAN or recorded:FILE.",
        metavar="TIME",
    )
    server_time: str | float | None = setting(None, "Server time per payload.", metavar="TIME")
    network_time: str | float | None = setting(
        None, "Time per message, in addition to latency and bandwidth.", metavar="TIME"
    )
    bandwidth: float | None = setting(None, "Bandwidth of the server's link in bytes/s.", above=0)
    latency: float | None = setting(None, "Latency per message in seconds.", least=0)
    speeds: list[float] | None = setting(
        None, "Relative speeds of workers 0, 1, …, e.g. 1,1,0.5.", above=0, metavar="LIST"
    )
    change: list[str] | None = setting(
        None, "Make a worker die, join or leave after S seconds, e.g. 3:dies:20.", metavar="WORKER:WHAT:S"
    )
    mean_life: float | None = setting(None, "Let workers die at random; mean lifetime in seconds.", above=0)
    restart: float | None = setting(None, "Seconds until a dead worker is restarted.", least=0)

    def __post_init__(self) -> None:
        check(self, StrategyError)


@dataclass(frozen=True)
class DriverSettings:
    """What carries a strategy out."""

    COMMON: ClassVar[dict[str, Any]] = {"group": LIMITS, "verbs": ("train",), "runs": ("local", "ray", "virtual")}

    driver: str = setting(
        "auto",
        "How workers run: local (processes on this machine), ray (actors on a Ray cluster) or virtual (simulated "
        "workers and time, real gradients).",
        group=DISTRIBUTION,
        choices=DRIVERS,
    )
    address: str = setting(
        "", "Ray cluster, e.g. 10.0.0.1:6379 or auto; empty: start Ray on this machine.", group=DISTRIBUTION,
        runs=RAY, metavar="HOST:PORT",
    )  # fmt: skip
    worker_cpus: float = setting(1.0, "CPUs per worker on a Ray cluster.", group=DISTRIBUTION, runs=RAY, above=0)
    on_bad_gradient: str = setting("stop", "What to do if a payload is not finite.", choices=POLICIES)
    record_events: bool = setting(False, "Record the order of events, so that the run can be replayed.")
    validate_every: str = setting(
        "1epoch",
        "How often to validate, e.g. 1epoch, 500updates or 30s.",
        group=DATA,
        runs=("alone", "local", "ray", "virtual"),
        check=parse_interval,
        metavar="INTERVAL",
    )
    server_threads: int = setting(
        1, "Threads of the parameter server.", group=DISTRIBUTION, runs=REAL, least=1, most=1024
    )  # fmt: skip
    server_shards: int | None = setting(
        None, "Servers of a Ray cluster that share the parameters; default: one per 256 MiB, at most one per node.",
        group=DISTRIBUTION, runs=RAY, least=1, most=1024,
    )  # fmt: skip
    server_replica: bool = setting(
        False,
        "Replicate the server on another node of the Ray cluster, so that no update is lost if it dies.",
        group=DISTRIBUTION,
        runs=RAY,
    )
    collective: str = setting(
        "auto",
        "How a synchronous group averages its payloads: auto, shared (in the update), nccl or gloo (between members).",
        group=DISTRIBUTION,
        runs=REAL,
        choices=COLLECTIVES,
    )
    port_range: str = setting(
        "", "Ports on which workers of a Ray cluster listen for their group (gloo), e.g. 40000-40999; empty: any.",
        group=DISTRIBUTION, runs=RAY, check=parse_port_range, metavar="FIRST-LAST",
    )  # fmt: skip
    stopped_timeout: float = setting(
        25.0, "Seconds until a process that is stopped or does not answer is replaced.", runs=REAL, above=0
    )
    idle_timeout: float = setting(
        120.0, "Seconds until a process that makes no progress and uses no CPU time is replaced.", runs=REAL, above=0
    )
    busy_timeout: float = setting(
        3600.0, "Seconds until a process that makes no progress but uses CPU time is replaced.", runs=REAL, above=0
    )
    start_timeout: float = setting(600.0, "Seconds that a worker may take to start.", runs=REAL, above=0)

    def __post_init__(self) -> None:
        check(self, StrategyError)


@dataclass(frozen=True)
class ParallelSettings:
    """How one network is divided among several processes. With `workers`, every worker is that many processes."""

    COMMON: ClassVar[dict[str, Any]] = {"group": DISTRIBUTION, "verbs": ("train",), "runs": ("local",)}

    pipeline: int = setting(
        1,
        "Number of pipeline stages: processes that each hold consecutive layers.",
        least=1,
        most=MOST_STAGES,
        verbs=("train", "predict"),
    )
    microbatches: int | None = setting(
        None,
        "Number of micro-batches per batch in a pipeline; about 4 per stage by default.",
        least=1,
        most=4096,
        verbs=("train", "predict"),
    )
    pipeline_schedule: str = setting(
        "1f1b", "Order of the passes in a pipeline: gpipe keeps the activations of all micro-batches.",
        verbs=(), choices=PIPELINE_SCHEDULES,
    )  # fmt: skip
    tensor: int = setting(
        1, "Number of processes that split each linear layer by feature.", least=1, most=MOST_STAGES,
        verbs=("train", "predict"),
    )  # fmt: skip
    shard: str = setting(
        "none", "fsdp: shard parameters, gradients and optimizer state across the workers.", choices=SHARDINGS,
        verbs=("train", "predict"),
    )  # fmt: skip
    cut: str = setting(
        "", "First layers of pipeline stages 2, 3, …; by default, stages take about the same time.",
        verbs=(), metavar="LAYER,LAYER",
    )  # fmt: skip

    def __post_init__(self) -> None:
        check(self, StrategyError)

    @property
    def divides(self) -> bool:
        """Whether anything is divided, or run as if it were."""
        return self.pipeline > 1 or self.tensor > 1 or self.shard != "none" or self.microbatches is not None

    @property
    def processes(self) -> int:
        """Processes that one copy of the network is divided among."""
        return self.pipeline * self.tensor

    @property
    def divided_by(self) -> str:
        """The setting by which the network is divided, for messages."""
        return next((f"`{name}={value!r}`" for name, value in self._given()), "`microbatches`")

    def _given(self) -> Iterable[tuple[str, Any]]:
        return ((k, getattr(self, k)) for k in ("pipeline", "tensor", "shard") if getattr(self, k) not in (1, "none"))

    def check_batch(self, batch: int) -> None:
        """Raises what is wrong with the micro-batches of such a batch."""
        count = self.microbatches_of(batch)
        if batch % count:
            raise StrategyError(f"`microbatches={count}` should divide `batch={batch}`")
        if self.pipeline_schedule == "1f1b" and count < self.pipeline:
            raise StrategyError(
                f"`microbatches={count}` are fewer than the {self.pipeline} stages: use more, or "
                "`pipeline_schedule='gpipe'`"
            )

    def microbatches_of(self, batch: int) -> int:
        """As asked, or the largest divisor of the batch that is at most four per stage."""
        if self.microbatches is not None:
            return self.microbatches
        if self.pipeline == 1:
            return 1
        return max(n for n in range(1, MICROBATCHES_PER_STAGE * self.pipeline + 1) if batch % n == 0)


@dataclass(frozen=True)
class RunSettings:
    """What kind of run it is, and how much of it there is."""

    COMMON: ClassVar[dict[str, Any]] = {"group": RUN}

    kind: str = setting("train", "What is done with the workload.", choices=KINDS)
    step: str = setting(
        "auto",
        "Implementation of the training step; tune (only for train): the fastest one, by a short trial.",
        verbs=("train", "measure", "predict"),
        runs=("alone", "measure"),
        choices=(*STEPS, TUNE),
    )
    steps: int = setting(
        100, "Average number of steps per worker.", verbs=("simulate",), runs=("simulate",), least=1, most=10**12
    )
    iterations: int | None = setting(
        None,
        "Number of iterations to run; default: 200, and on a CPU as many as take two seconds.",
        verbs=("measure",),
        runs=("measure", "feed"),
        least=20,
        most=10_000_000,
    )
    measure: bool = setting(False, "Measure every layer during training.", verbs=("train",), runs=("alone", "local"))
    devices: int = setting(
        1, "Stand-ins that are fed over one bus; 0: the network itself, with images.", runs=("feed",), least=0
    )
    ahead: bool = setting(True, "Whether the next batch is fetched while a device computes.", runs=("feed",))
    refresh: float = setting(
        0.25, "Seconds for which the next batch of a device occupies the bus.", runs=("feed",), above=0, below=3600
    )
    compute: float = setting(0.5, "Seconds that a stand-in computes.", runs=("feed",), above=0, below=3600)

    def __post_init__(self) -> None:
        check(self, InputError)


def keys_of(*records: type) -> tuple[str, ...]:
    return tuple(schema(records))


def schema(records: Iterable[type]) -> dict[str, Setting]:
    """The settings of several records by name; of two with one name, the first."""
    found: dict[str, Setting] = {}
    for record in records:
        for name, each in settings_of(record).items():
            found.setdefault(name, each)
    return found


DISTRIBUTION_RECORDS = (StrategySettings, Strategy, ClusterSettings, DriverSettings, ParallelSettings)
SCHEMA = schema((Workload, RunSettings, *DISTRIBUTION_RECORDS))
"""Every setting there is, by name."""
