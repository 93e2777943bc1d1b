"""`paceline simulate --cluster`: a strategy on machines you have or could rent, with increasing numbers of workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from paceline.cli.tables import rows_table

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from paceline.simulation.on_cluster import ClusterOutcome
    from paceline.simulation.scaling import MachineScaling, Scaling


def show_scaling(made: Scaling, console: Console, steps: int | None, epochs: int | None) -> None:
    """A table for each kind of machine, for the given number of steps or epochs."""
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


def _calibrated(outcomes: Sequence[ClusterOutcome]) -> list[str]:
    """Which rows are more than simulated."""
    from paceline.formatting import listed

    numbers = [str(outcome.workers) for outcome in outcomes if outcome.calibrated]
    return [f"with {listed(numbers)} workers: exchange as calibrated on this machine"] if numbers else []


def _headline(each: MachineScaling, made: Scaling) -> str:
    from paceline.formatting import count, duration

    p = each.prediction
    step = f"a step alone {duration(p.iteration_s)} ({duration(p.low_s)} to {duration(p.high_s)}; {p.basis})"
    said = [f"{each.machine}: {p.name} at batch {p.batch} on {p.device}, {step}"]
    said.append(f"{made.strategy.name}, {count(each.workers_per_machine, 'worker')} per machine")
    said += [f"{each.network} between machines"] if each.network else []
    said += ["all-reduces begin during the backward pass"] if made.overlap_backward else []
    said += ["an epoch is every worker's own pass over all data"] if made.strategy.full_pass_per_worker else []
    said += [f"prices of {each.price_date}"] if each.price_date else []
    return "; ".join(said)


def _table(outcomes: Sequence[ClusterOutcome], steps: int | None, epochs: int | None) -> Table:
    from paceline.formatting import duration, number, percent

    whole = f"{epochs:,} epochs" if epochs is not None else f"{steps:,} steps" if steps is not None else ""
    rows = []
    for o in outcomes:
        whole_s = o.step_s * steps if steps is not None else o.epoch_s * (epochs or 1)
        money = None
        if o.money_per_epoch is not None and o.epoch_s:
            money = o.money_per_epoch / o.epoch_s * whole_s
        rows.append({
            "workers": f"{o.workers:,}", "machines": f"{o.machines:,}",
            "epoch": duration(o.epoch_s) if o.epoch_s else None,
            **({whole: duration(whole_s) if whole_s else None} if whole else {}),
            "samples/s": number(o.samples_per_s), "efficiency": percent(o.efficiency, 1),
            "waiting": percent(o.waiting_share, 1), "exchange": percent(o.communication_share, 1),
            "staleness": f"{o.staleness_mean:.1f}",
            f"{o.currency} per {whole or 'epoch'}": None if money is None else number(money), "bound by": o.bound,
        })  # fmt: skip
    return rows_table(rows, left=("bound by",))
