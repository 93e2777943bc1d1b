"""`paceline simulate`: the time of a strategy on a cluster that need not exist, without computing gradients.

With `--cluster`, on machines you have or could rent, with increasing numbers of workers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from paceline.cli.console import JsonOption, console_for, facts_table, output_json, rows_table, use_all_columns
from paceline.cli.options import WORKLOAD, OutOption, flag, option, takes_settings
from paceline.errors import InputError, StrategyError
from paceline.formatting import count, duration, listed, number, percent
from paceline.record import dump
from paceline.workload import MOST_EPOCHS

if TYPE_CHECKING:
    from paceline.simulation.on_cluster import ClusterOutcome
    from paceline.simulation.scaling import MachineScaling, Scaling
    from paceline.simulation.timing import TimeRecord

EXAMPLE = "Example: paceline simulate dnn --strategy downpour --workers 1000 --steps 100 --compute-time gamma:50:0.02"


@takes_settings("simulate")
def simulate(
    given: dict[str, Any],
    workload: Annotated[str, typer.Argument(metavar="WORKLOAD", help=WORKLOAD)],
    epochs: Annotated[int | None, option("With --cluster: report the time and cost of this many epochs.", "N")] = None,
    cluster: Annotated[
        str | None, option("A cluster.toml, a machine name, or here (this machine).", "FILE|MACHINE")
    ] = None,
    per_machine: Annotated[int | None, option("Workers per machine; default: one per device.", "N")] = None,
    overlap_backward: Annotated[
        bool, flag("overlap-backward", "With --cluster: start all-reduces during the backward pass.")
    ] = False,
    out: OutOption = None,
    json: JsonOption = None,
) -> None:
    """Simulate a strategy on a cluster: its time, throughput, waiting and staleness."""
    from paceline.api.simulate import simulate as run
    from paceline.simulation.timing import TimeRecord

    steps = given.get("steps")
    if epochs is not None:
        _check_epochs(epochs, steps, cluster)
    made = run(
        workload, cluster=cluster, per_machine=per_machine, overlap_backward=overlap_backward, out=out, **given
    )  # fmt: skip
    console = console_for(json)
    if isinstance(made, TimeRecord):
        console.print(_table(made))
    else:
        show_scaling(made, console, steps, epochs)
    if out is not None:
        console.print(f"{'' if isinstance(made, TimeRecord) else 'curves, '}record and trace: {out}")
    output_json(dump(made), json)


def _check_epochs(epochs: int, steps: int | None, cluster: str | None) -> None:
    if cluster is None:
        raise StrategyError("--epochs needs a --cluster, e.g. --cluster g2-standard-8")
    if steps is not None:
        raise StrategyError("--epochs and --steps cannot be combined")
    if not 1 <= epochs <= MOST_EPOCHS:
        raise InputError(f"--epochs {epochs} should be from 1 to {MOST_EPOCHS:,}")


def _table(made: TimeRecord) -> Table:
    from paceline.cli.progress import distribution_facts

    messages = f"fetch {made.message_bytes / 1e6:,.3g} MB, push {made.push_bytes / 1e6:,.3g} MB"
    return facts_table({
        **distribution_facts(made.distribution),
        "steps": f"{made.steps:,}, {made.steps_per_s:,.6g}/s",
        "updates": f"{made.distribution.updates:,}",
        "messages": messages if made.message_bytes else "",  # none where the network is not limited
        "communicating": f"{percent(made.communicating_share)} of the workers' time",
        "server busy": f"{percent(made.server_share)} of the time",
        "simulated in": f"{made.wall_s:.2f} s",
    })  # fmt: skip


def show_scaling(made: Scaling, console: Console, steps: int | None, epochs: int | None) -> None:
    use_all_columns(console)
    for place, each in enumerate(made.machines):
        if place:
            console.print()
        console.print(_headline(each, made))
        if each.outcomes:
            console.print(_outcomes_table(each.outcomes, steps, epochs), soft_wrap=False)
        if numbers := [str(outcome.workers) for outcome in each.outcomes if outcome.calibrated]:
            console.print(f"with {listed(numbers)} workers: exchange as calibrated on this machine")
        for line in each.left_out:
            console.print(line)


def _headline(each: MachineScaling, made: Scaling) -> str:
    p = each.prediction
    step = f"a step alone {duration(p.iteration_s)} ({duration(p.low_s)} to {duration(p.high_s)}; {p.basis})"
    said = [f"{each.machine}: {p.name} at batch {p.batch} on {p.device}, {step}"]
    said.append(f"{made.strategy.name}, {count(each.workers_per_machine, 'worker')} per machine")
    said += [f"{each.network} between machines"] if each.network else []
    said += ["all-reduces begin during the backward pass"] if made.overlap_backward else []
    said += ["an epoch is every worker's own pass over all data"] if made.strategy.full_pass_per_worker else []
    said += [f"prices of {each.price_date}"] if each.price_date else []
    return "; ".join(said)


def _outcomes_table(outcomes: Sequence[ClusterOutcome], steps: int | None, epochs: int | None) -> Table:
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
