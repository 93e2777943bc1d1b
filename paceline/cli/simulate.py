"""`paceline simulate`: how long a strategy takes on a cluster that need not exist, without computing gradients."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paceline.cli.console import JsonOption, check_json, console_for, hand_over
from paceline.cli.distributed import ClusterOptions, StrategyOptions
from paceline.cli.option_groups import takes
from paceline.errors import StrategyError

if TYPE_CHECKING:
    from rich.table import Table

    from paceline.simulation.time_record import TimeRecord
    from paceline.strategy.strategy import Strategy

EXAMPLE = "Example: paceline simulate dnn --strategy downpour --workers 1000 --steps 100 --compute-time gamma:100:0.01"
STEPS = 100


@dataclass(frozen=True)
class SimulatedOptions(StrategyOptions):
    """Several numbers of workers may be given."""

    workers: Annotated[
        str | None, typer.Option(help="How many workers; with --cluster several numbers, as 4,8,12.")
    ] = None  # type: ignore[assignment]

    def build_all(self) -> tuple[Strategy, list[int]]:
        """The strategy, and with how many workers each time it is carried out."""
        given = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        made = [StrategyOptions(**{**given, "workers": number}).build() for number in self._numbers()]
        return made[0][0], [workers for _, workers in made]

    def _numbers(self) -> list[int | None]:
        if self.workers is None:
            return [None]
        try:
            return [int(word) for word in str(self.workers).split(",")]
        except ValueError:
            raise StrategyError(
                f"--workers {self.workers!r} should be a whole number, or several with commas between them, as 4,8,12"
            ) from None


@takes(strategy=SimulatedOptions, virtual=ClusterOptions)
def simulate(
    workload: Annotated[str, typer.Argument(help="As for train; its size is that of the messages.")],
    steps: Annotated[int | None, typer.Option(help=f"Steps per worker on average; {STEPS} if not given.")] = None,
    epochs: Annotated[int | None, typer.Option(help="With --cluster: also time and money of so many.")] = None,
    full_pass_per_worker: Annotated[
        bool, typer.Option("--full-pass-per-worker", help="Every worker goes over all data.")
    ] = False,
    data: Annotated[str | None, typer.Option(help="Data source; its samples' shape is that of the network.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any other key of a workload.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Every random number follows from it.")] = 0,
    cluster: Annotated[
        str | None, typer.Option(metavar="FILE|MACHINE", help="A cluster.toml, a machine of the catalogue, or here.")
    ] = None,
    per_machine: Annotated[int | None, typer.Option(help="Workers per machine; one per device if not given.")] = None,
    overlap_backward: Annotated[
        bool, typer.Option("--overlap-backward", help="With --cluster: all-reduces begin during the backward pass.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Directory for the record and the trace; with --cluster also the curve.")
    ] = None,
    json: JsonOption = None,
    *,
    strategy: SimulatedOptions,
    virtual: ClusterOptions,
) -> None:
    """Simulate a strategy's time, throughput, waiting and staleness, also on machines that one could rent."""
    from paceline.record import dump
    from paceline.simulation.timing import time_workload
    from paceline.training.directory import check_new
    from paceline.workload import parse_settings, resolve

    check_json(json)
    if out is not None:
        check_new(out)
    if not strategy.named:
        raise StrategyError("name a --strategy to simulate, as --strategy downpour, or a number of --workers")
    rule, workers = strategy.build_all()
    rule = dataclasses.replace(rule, full_pass_per_worker=full_pass_per_worker or rule.full_pass_per_worker)
    given = {"seed": seed, **({"data": data} if data is not None else {}), **parse_settings(settings or [])}
    if cluster is not None:
        from paceline.cli.simulate_cluster import simulate_cluster

        if words := virtual.words():
            raise StrategyError(f"--{next(iter(words))} follows from the machines of --cluster: give one of the two")
        if steps is not None and epochs is not None:
            raise StrategyError("--epochs and --steps exclude each other")
        simulate_cluster(
            workload, given, rule, workers, cluster,
            per_machine=per_machine, steps=steps, epochs=epochs, overlap_backward=overlap_backward, out=out, json=json,
        )  # fmt: skip
        return
    overlap = overlap_backward or None
    for option, value in (("--epochs", epochs), ("--per-machine", per_machine), ("--overlap-backward", overlap)):
        if value is not None:
            raise StrategyError(f"{option} needs a --cluster, as --cluster g2-standard-8")
    if len(workers) > 1:
        raise StrategyError(f"--workers {strategy.workers}: several numbers need a --cluster; here give one")
    simulated = virtual.build()
    simulated.check(workers[0])
    made = time_workload(
        resolve(workload, given), rule, workers[0], STEPS if steps is None else steps, simulated, virtual.words()
    )  # fmt: skip
    console = console_for(json)
    console.print(_table(made))
    if out is not None:
        _keep(made, out)
        console.print(f"record and trace: {out}", markup=False)
    hand_over(dump(made), json)


def _keep(made: TimeRecord, out: Path) -> None:
    from paceline.record import save, write_atomically
    from paceline.reporting.chrome_trace import TRACE, chrome_trace
    from paceline.training.directory import new_directory

    directory = new_directory(out)
    save(made, directory / "record.json")
    write_atomically(directory / TRACE, chrome_trace(made.trace, directory.resolve().name))


def _table(made: TimeRecord) -> Table:
    from rich.table import Table

    found = made.distribution
    table = Table(show_header=False, box=None, pad_edge=False)
    share = "of the workers' time"
    for name, value in (
        ("strategy", f"{found.strategy.name}, {found.workers:,} workers"),
        ("virtual time", f"{made.seconds:,.6g} s"),
        ("steps", f"{made.steps:,}, {made.steps_per_s:,.6g}/s"),
        ("updates", f"{found.updates:,}, {made.updates_per_s:,.6g}/s"),
        ("messages", _messages(made)),
        ("waiting", f"{made.waiting_share:.2%} {share}"),
        ("communicating", f"{made.communicating_share:.2%} {share}"),
        ("server busy", f"{made.server_share:.2%} of the time"),
        ("staleness", f"mean {made.mean_staleness:.2f}, 99 % up to {made.staleness_p99}"),
        ("batches", _batches(made)),
        ("simulated in", f"{made.wall_s:.2f} s"),
    ):
        if value:
            table.add_row(name, value)
    return table


def _messages(made: TimeRecord) -> str:
    """Nothing where the network is not limited."""
    if not made.message_bytes:
        return ""
    return f"fetch {made.message_bytes / 1e6:,.3g} MB, push {made.push_bytes / 1e6:,.3g} MB"


def _batches(made: TimeRecord) -> str:
    ledger = made.distribution.ledger
    counts = {"applied": ledger.applied, "dropped": ledger.dropped, "given out again": ledger.returned}
    return ", ".join(f"{count:,} {what}" for what, count in counts.items() if count or what == "applied")
