"""`paceline simulate --cluster`: a strategy on machines that one has or could rent, with more and more workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

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
    from rich.table import Table

    from paceline.formatting import duration, number, percent

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
            f"{o.workers:,}", f"{o.machines:,}", duration(o.epoch_s) if o.epoch_s else "--",
            *([duration(whole_s) if whole_s else "--"] if whole else []), number(o.samples_per_s),
            percent(o.efficiency, 1), percent(o.waiting_share, 1), percent(o.communication_share, 1),
            f"{o.staleness_mean:.1f}", "--" if money is None else number(money), o.bound,
        )  # fmt: skip
    return table
