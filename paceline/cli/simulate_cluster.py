"""`paceline simulate --cluster`: a strategy on machines that one has or could rent, with more and more workers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.cli.console import console_for, hand_over
from paceline.errors import InputError

if TYPE_CHECKING:
    from rich.table import Table

    from paceline.cluster import Cluster, Machine
    from paceline.simulation.on_cluster import ClusterOutcome
    from paceline.simulation.scaling import MachineScaling, Scaling
    from paceline.strategy.strategy import Strategy

SIMULATED = "scaling.json"


def simulate_cluster(
    place: str,
    given: dict[str, Any],
    strategy: Strategy,
    workers: Sequence[int],
    cluster: str,
    *,
    per_machine: int | None = None,
    steps: int | None = None,
    epochs: int | None = None,
    overlap_backward: bool = False,
    out: Path | None = None,
    json: str | None = None,
) -> None:
    from paceline.record import dump, save, write_atomically
    from paceline.reporting.chrome_trace import TRACE, chrome_traces
    from paceline.reporting.scaling_curve import write_curve
    from paceline.simulation.scaling import scale, traces
    from paceline.simulation.this_machine import HERE
    from paceline.training.directory import new_directory
    from paceline.workload import resolve

    for name, value in (("--per-machine", per_machine), ("--steps", steps), ("--epochs", epochs)):
        if value is not None and value < 1:
            raise InputError(f"{name} {value} should be at least 1")
    machines = _machines(cluster)
    if cluster == HERE:  # all workers are its processes
        per_machine = per_machine or max(workers)
    made = scale(
        resolve(place, given), machines, strategy, workers,
        per_machine=per_machine, overlap_backward=overlap_backward,
    )  # fmt: skip
    console = console_for(json)
    if not console.is_terminal:
        console.width = 200  # a file has room for all columns
    for number, each in enumerate(made.machines):
        if number:
            console.print()
        console.print(_headline(each, made), markup=False)
        if each.outcomes:
            console.print(_table(each.outcomes, steps, epochs), soft_wrap=False, markup=False)
        for line in (*_calibrated(each.outcomes), *each.left_out):
            console.print(line, markup=False)
    if out is not None:
        directory = new_directory(out)
        save(made, directory / SIMULATED)
        write_atomically(directory / TRACE, chrome_traces(traces(made, machines)))
        curve, *_ = write_curve(made, directory)
        said = f"curve: {curve}   record: {directory / SIMULATED}   trace: {directory / TRACE}"
        console.print(said, markup=False)
    hand_over(dump(made), json)


def _machines(cluster: str) -> Cluster | Machine:
    from paceline.cluster import Cluster, MachineCount, find_machine, read_cluster
    from paceline.cluster.cluster_file import is_file_name
    from paceline.simulation.this_machine import HERE, this_machine

    if cluster == HERE:
        return Cluster(HERE, (MachineCount(this_machine()),))
    if is_file_name(cluster):
        return read_cluster(cluster)
    try:
        return find_machine(cluster)
    except InputError as error:
        raise InputError(f"--cluster: {error} (or name a cluster.toml, or here for this machine)") from error


def _calibrated(outcomes: Sequence[ClusterOutcome]) -> list[str]:
    """Which rows are more than simulated."""
    from paceline.results.formatting import listed

    numbers = [str(outcome.workers) for outcome in outcomes if outcome.calibrated]
    return [f"with {listed(numbers)} workers: exchange as calibrated on this machine"] if numbers else []


def _headline(each: MachineScaling, made: Scaling) -> str:
    from paceline.results.formatting import brief, count

    p = each.prediction
    step = f"a step alone {brief(p.iteration_s)} ({brief(p.low_s)} to {brief(p.high_s)}; {p.basis})"
    said = [f"{each.machine}: {p.name} at batch {p.batch} on {p.device}, {step}"]
    said.append(f"{made.strategy.name}, {count(each.workers_per_machine, 'worker')} per machine")
    said += [f"{each.network} between machines"] if each.network else []
    said += ["all-reduces begin during the backward pass"] if made.overlap_backward else []
    said += ["an epoch is every worker's own pass over all data"] if made.full_pass_per_worker else []
    said += [f"prices of {each.price_date}"] if each.price_date else []
    return "; ".join(said)


def _table(outcomes: Sequence[ClusterOutcome], steps: int | None, epochs: int | None) -> Table:
    from rich.table import Table

    from paceline.results.formatting import brief, number, percent

    whole = f"{epochs:,} epochs" if epochs is not None else f"{steps:,} steps" if steps is not None else ""
    columns = ["workers", "machines", "epoch", *([whole] if whole else []), "samples/s", "efficiency"]
    columns += ["waiting", "exchange", "staleness", f"{outcomes[0].currency}, {whole or 'an epoch'}", "bound by"]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, justify="left" if column == "bound by" else "right", no_wrap=True)
    for o in outcomes:
        whole_s = o.step_s * steps if steps is not None else o.epoch_s * (epochs or 1)
        money = None
        if o.money_per_epoch is not None and o.epoch_s:
            money = o.money_per_epoch / o.epoch_s * whole_s
        table.add_row(
            f"{o.workers:,}", f"{o.machines:,}", brief(o.epoch_s) if o.epoch_s else "--",
            *([brief(whole_s) if whole_s else "--"] if whole else []), number(o.samples_per_s),
            percent(o.efficiency, 1), percent(o.waiting_share, 1), percent(o.communication_share, 1),
            f"{o.staleness_mean:.1f}", "--" if money is None else number(money), o.bound,
        )  # fmt: skip
    return table
