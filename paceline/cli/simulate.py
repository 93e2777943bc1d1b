"""`paceline simulate`: the time of a strategy on a cluster that need not exist, without computing gradients."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paceline.cli.console import JsonOption, console_for, output_json
from paceline.cli.options import WORKLOAD, OutOption, takes_settings
from paceline.cli.simulate_cluster import show_scaling
from paceline.cli.tables import facts_table
from paceline.errors import InputError, StrategyError

if TYPE_CHECKING:
    from rich.table import Table

    from paceline.simulation.scaling import Scaling
    from paceline.simulation.timing import TimeRecord

EXAMPLE = "Example: paceline simulate dnn --strategy downpour --workers 1000 --steps 100 --compute-time gamma:50:0.02"


@takes_settings("simulate")
def simulate(
    workload: Annotated[str, typer.Argument(help=WORKLOAD)],
    epochs: Annotated[
        int | None, typer.Option(metavar="N", help="With --cluster: report time and cost of this many epochs.")
    ] = None,
    cluster: Annotated[
        str | None, typer.Option(metavar="FILE|MACHINE", help="A cluster.toml, a machine name, or here.")
    ] = None,
    per_machine: Annotated[
        int | None, typer.Option(metavar="N", help="Workers per machine; by default one per device.")
    ] = None,
    overlap_backward: Annotated[
        bool, typer.Option("--overlap-backward", help="With --cluster: start all-reduces during the backward pass.")
    ] = False,
    out: OutOption = None,
    json: JsonOption = None,
    *,
    given: dict[str, Any],
) -> None:
    """Simulate the time, throughput, waiting and staleness of a strategy on a virtual or a real cluster."""
    from paceline.api.simulate import simulate as run
    from paceline.record import dump
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
        console.print(_files(out, made), markup=False)
    output_json(dump(made), json)


def _check_epochs(epochs: int, steps: int | None, cluster: str | None) -> None:
    from paceline.workload import MOST_EPOCHS

    if cluster is None:
        raise StrategyError("--epochs needs a --cluster, as --cluster g2-standard-8")
    if steps is not None:
        raise StrategyError("--epochs and --steps cannot be combined")
    if not 1 <= epochs <= MOST_EPOCHS:
        raise InputError(f"--epochs {epochs} should be from 1 to {MOST_EPOCHS:,}")


def _files(out: Path, made: TimeRecord | Scaling) -> str:
    from paceline.api.simulate import SCALING
    from paceline.reporting.chrome_trace import TRACE
    from paceline.simulation.scaling import Scaling

    if not isinstance(made, Scaling):
        return f"record and trace: {out}"
    return f"curves, record and trace: {out}, {SCALING}, {TRACE}"


def _table(made: TimeRecord) -> Table:
    from paceline.cli.progress import ledger_words
    from paceline.formatting import percent

    found = made.distribution
    share = "of the workers' time"
    return facts_table({
        "strategy": f"{found.strategy.name}, {found.workers:,} workers",
        "virtual time": f"{made.seconds:,.6g} s",
        "steps": f"{made.steps:,}, {made.steps_per_s:,.6g}/s",
        "updates": f"{found.updates:,}, {made.updates_per_s:,.6g}/s",
        "messages": _messages(made),
        "waiting": f"{percent(made.waiting_share, 2)} {share}",
        "communicating": f"{percent(made.communicating_share, 2)} {share}",
        "server busy": f"{percent(made.server_share, 2)} of the time",
        "staleness": f"mean {made.mean_staleness:.2f}, 99 % up to {made.staleness_p99}",
        "batches": ledger_words(found.ledger),
        "simulated in": f"{made.wall_s:.2f} s",
    })  # fmt: skip


def _messages(made: TimeRecord) -> str:
    """Nothing where the network is not limited."""
    if not made.message_bytes:
        return ""
    return f"fetch {made.message_bytes / 1e6:,.3g} MB, push {made.push_bytes / 1e6:,.3g} MB"
