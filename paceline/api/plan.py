"""`paceline.plan`: which machines, how many, and how to distribute, for a deadline, a budget or an accuracy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.api.settings import as_optional_path, check_number, split
from paceline.errors import InputError
from paceline.given_workload import given_workload

if TYPE_CHECKING:
    from paceline.cluster import Cluster
    from paceline.given_workload import WorkloadLike
    from paceline.planning.machine_options import MachineOptions
    from paceline.planning.objective import Objective
    from paceline.planning.plan import Plan
    from paceline.strategy.strategy import Strategy
    from paceline.workload import Workload

FILE, PAGE = "plan.json", "summary.html"


def plan(
    workload: WorkloadLike,
    cluster: str | Path | Cluster = "catalogue",
    *,
    epochs: float | None = None,
    target_accuracy: float | str | None = None,
    deadline: float | str | None = None,
    budget: float | str | None = None,
    spot: bool = False,
    strategies: str | Sequence[str | Strategy] | None = None,
    out: str | Path | None = None,
    **settings: Any,
) -> Plan:
    """Plan a training run: which machines, strategy and batch size meet a deadline, a budget or an accuracy.

    `cluster` is a cluster.toml, machines of the catalogue by name with commas between them, "catalogue" for all of
    them, "here" for this machine, or a `Cluster`. The workload is trained for its own number of epochs, for `epochs`,
    or until it reaches the test accuracy `target_accuracy`, e.g. 0.97 or "97%". With a `deadline` (seconds, or text
    such as "24h") the cheapest plan that meets it is picked, with a `budget` the fastest. `met` of the plan says
    whether the pick keeps both. `strategies` limits what is tried. `out` is a new directory for plan.json and a page;
    train as planned with `paceline.train(plan)`.

    >>> made = paceline.plan("lenet5", "g2-standard-8,a2-highgpu-1g", data="digits", deadline="24h", strategies="sync")
    >>> made.met, made.pick.candidate.machine in ("g2-standard-8", "a2-highgpu-1g")
    (True, True)
    """
    from paceline.output_directory import check_new
    from paceline.planning.candidates import STRATEGIES
    from paceline.planning.planning import make_plan
    from paceline.strategy.presets import find_strategy

    own, _ = split(settings, plan)
    place = as_optional_path(out, "out")
    if place is not None:
        check_new(place)
    check_number(epochs, "epochs")
    for name, value in (("target_accuracy", target_accuracy), ("deadline", deadline), ("budget", budget)):
        if not isinstance(value, str):
            check_number(value, name)
    if strategies is not None and not isinstance(strategies, str | Sequence):
        raise InputError(f"strategies={strategies!r:.60} should be comma-separated names or a list")
    if isinstance(strategies, str):
        strategies = [name.strip() for name in strategies.split(",")]
    found = [find_strategy(strategy) for strategy in strategies or STRATEGIES]  # before anything is predicted
    with given_workload(workload, own) as resolved:
        objective = _objective(resolved, epochs, target_accuracy, deadline, budget, spot)
        made = make_plan(resolved, _places(cluster, spot), objective, strategies=found)
    if place is not None:
        _write(made, place)
    return made


def _places(cluster: str | Path | Cluster, spot: bool) -> MachineOptions | str:
    from paceline.cluster import Cluster
    from paceline.planning.machine_options import options_of

    if isinstance(cluster, Cluster):
        return options_of(cluster, spot=spot)
    if not isinstance(cluster, str | Path):
        raise InputError(f"cluster={cluster!r:.60} should be a cluster.toml, names of machines, catalogue or here")
    return str(cluster)


def _objective(
    workload: Workload, epochs: float | None, accuracy: float | str | None, deadline: float | str | None,
    budget: float | str | None, spot: bool,
) -> Objective:  # fmt: skip
    from paceline.planning.objective import Objective, read_accuracy, read_budget, read_deadline

    if epochs is not None and accuracy is not None:
        raise InputError("`epochs` and `target_accuracy` cannot be combined: give one of them")
    if epochs is None and accuracy is None:
        epochs = workload.epochs
    return Objective(
        epochs,
        read_accuracy(accuracy) if isinstance(accuracy, str) else accuracy,
        read_deadline(deadline) if isinstance(deadline, str) else deadline,
        read_budget(budget) if isinstance(budget, str) else budget,
        spot,
    )


def _write(made: Plan, out: Path) -> None:
    from paceline.record import save
    from paceline.reporting.page import write_records
    from paceline.results.records import Records

    save(made, out / FILE)
    write_records(Records(plans=[(out.resolve().name, made)]), out / PAGE)
