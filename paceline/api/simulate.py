"""`paceline.simulate`: how long a strategy takes on a cluster that need not exist, without computing gradients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.api.settings import as_optional_path, check_whole, split
from paceline.errors import InputError, StrategyError
from paceline.given_workload import given_workload
from paceline.output_directory import claimed
from paceline.settings import pick
from paceline.training.settings import RunSettings
from paceline.training.starting import CLUSTER_KEYS, STRATEGY_KEYS

if TYPE_CHECKING:
    from paceline.cluster import Cluster, Machine
    from paceline.given_workload import WorkloadLike
    from paceline.simulation.scaling import Scaling
    from paceline.simulation.timing import TimeRecord
    from paceline.strategy.strategy import Strategy

STEPS, MOST_STEPS = RunSettings.steps, 10**12
RECORD, SCALING = "record.json", "scaling.json"


def simulate(
    workload: WorkloadLike,
    strategy: str | Strategy | None = None,
    workers: int | Sequence[int] | None = None,
    *,
    cluster: str | Path | Cluster | Machine | None = None,
    steps: int | None = None,
    per_machine: int | None = None,
    overlap_backward: bool = False,
    data_dir: str | Path | None = None,
    out: str | Path | None = None,
    **settings: Any,
) -> TimeRecord | Scaling:
    """Simulate the time, throughput, waiting and staleness of a strategy.

    Without a `cluster`, the settings of a virtual one say how long things take: `compute_time="gamma:100:0.01"`,
    `bandwidth`, `latency`, `speeds`, `mean_life` and so on; every worker takes `steps` steps on average, 100 if not
    given. With a `cluster` (a cluster.toml, a machine of the catalogue, `"here"`, a `Cluster` or a `Machine`) these
    times are predicted, several numbers of `workers` may be given, and the result has one outcome for each.

    `workload` and its settings are as for `paceline.train`. Settings of the strategy such as `push_every` are keyword
    arguments too. `out` is a new directory for the record and a trace, with a cluster also for a curve.

    >>> made = paceline.simulate("mlp", "downpour", workers=8, compute_time="gamma:100:0.01", steps=20)
    >>> made.steps, made.mean_staleness > 0
    (160, True)
    """
    own, others = split(settings, simulate, {*STRATEGY_KEYS, *CLUSTER_KEYS})
    place, cache = as_optional_path(out, "out"), as_optional_path(data_dir, "data_dir")
    chosen = {key: value for key, value in others.items() if key not in CLUSTER_KEYS}
    virtual = {key: value for key, value in others.items() if key in CLUSTER_KEYS and value not in (None, [])}
    check_whole(steps, "steps", 1)
    check_whole(per_machine, "per_machine", 1)
    rule, counts = _strategy(strategy, workers, chosen)
    with given_workload(workload, own) as resolved, claimed(place) as directory:
        if cluster is None:
            for name, value in (("per_machine", per_machine), ("overlap_backward", overlap_backward or None)):
                if value is not None:
                    raise StrategyError(f"`{name}` needs a cluster, e.g. `cluster='g2-standard-8'`")
            if len(counts) > 1:
                raise StrategyError(f"`workers={counts}`: several numbers need a `cluster`; give one")
            return _with_times(resolved, rule, counts[0], STEPS if steps is None else steps, virtual, cache, directory)
        if virtual:
            raise StrategyError(
                f"`{next(iter(virtual))}` follows from the machines of the `cluster`: give one of the two"
            )
        if steps is not None and not 1 <= steps <= MOST_STEPS:
            raise InputError(f"`steps={steps}` should be from 1 to {MOST_STEPS:,}")
        return _on_cluster(resolved, rule, counts, cluster, per_machine, overlap_backward, directory)


def _strategy(
    strategy: str | Strategy | None, workers: int | Sequence[int] | None, chosen: dict[str, Any]
) -> tuple[Strategy, list[int]]:
    """The strategy, and with how many workers each time it is carried out."""
    from paceline.training.distributing import build_strategy

    if strategy is None and workers is None and "groups" not in chosen:
        raise StrategyError("name a strategy to simulate, e.g. `strategy='downpour'`, or a number of `workers`")
    if isinstance(workers, str):
        raise StrategyError(f"workers={workers!r} should be a whole number, or a list of them")
    numbers = list(workers) if isinstance(workers, Sequence) else [workers]
    if not numbers:
        raise StrategyError("workers=[] should have at least one number")
    named = {} if strategy is None else {"strategy": strategy}
    made = [build_strategy({**chosen, **named, "workers": number}) for number in numbers]
    return made[0][0], [count for _, count in made]


def _with_times(
    workload: Any, strategy: Strategy, workers: int, steps: int, given: dict[str, Any], cache: Path | None,
    out: Path | None,
) -> TimeRecord:  # fmt: skip
    from paceline.record import save, write_atomically
    from paceline.reporting.chrome_trace import TRACE, chrome_trace
    from paceline.simulation.timing import time_workload
    from paceline.training.distributing import build_cluster, cluster_words
    from paceline.training.settings import ClusterSettings

    settings = ClusterSettings(**pick(ClusterSettings, given))
    cluster = build_cluster(settings)
    cluster.check(workers)
    made = time_workload(workload, strategy, workers, steps, cluster, cluster_words(settings), cache=cache)
    if out is not None:
        save(made, out / RECORD)
        write_atomically(out / TRACE, chrome_trace(made.trace, out.resolve().name))
    return made


def _on_cluster(
    workload: Any, strategy: Strategy, workers: list[int], cluster: str | Path | Cluster | Machine,
    per_machine: int | None, overlap_backward: bool, out: Path | None,
) -> Scaling:  # fmt: skip
    from paceline.cost.this_machine import HERE
    from paceline.record import save, write_atomically
    from paceline.reporting.chrome_trace import TRACE, chrome_traces
    from paceline.reporting.paper_figures import write_figures
    from paceline.reporting.sections.clusters import cluster_figure
    from paceline.simulation.scaling import scale, traces

    if str(cluster) == HERE:  # all workers are its processes
        per_machine = per_machine or max(workers)
    machines = _machines(cluster)
    made = scale(
        workload, machines, strategy, workers, per_machine=per_machine, overlap_backward=overlap_backward
    )  # fmt: skip
    if out is not None:
        save(made, out / SCALING)
        write_atomically(out / TRACE, chrome_traces(traces(made, machines)))
        figure = cluster_figure(made, "scaling")
        write_figures([replace(figure, views=figure.views[:2])], out, "out")
    return made


def _machines(cluster: str | Path | Cluster | Machine) -> Cluster | Machine:
    from paceline.cluster import Cluster, Machine, MachineCount, find_machine, read_cluster
    from paceline.cluster.cluster_file import is_file_name
    from paceline.cost.this_machine import HERE, this_machine

    if isinstance(cluster, Cluster | Machine):
        return cluster
    if not isinstance(cluster, str | Path):
        raise InputError(f"cluster={cluster!r:.60} should be a cluster.toml, a machine's name, or here")
    name = str(cluster)
    if name == HERE:
        return Cluster(HERE, (MachineCount(this_machine()),))
    if is_file_name(name):
        return read_cluster(name)
    try:
        return find_machine(name)
    except InputError as error:
        raise InputError(f"`cluster`: {error} (or name a cluster.toml, or here for this machine)") from error
