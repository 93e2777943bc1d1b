"""A workload simulated on more and more workers, on each kind of machine: what `simulate --cluster` found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from paceline.formatting import brief, count, listed, number, percent
from paceline.reporting.figure import Cell, Column, Figure, Section, TableBlock, View, table
from paceline.simulation.on_cluster import ClusterOutcome
from paceline.simulation.scaling import MachineScaling, Scaling

Row = tuple[MachineScaling, ClusterOutcome]


def clusters(found: Sequence[tuple[str, Scaling]]) -> list[Section]:
    return [_section(scaling, "" if place == 0 else f"-{place + 1}") for place, (_, scaling) in enumerate(found)]


def cluster_sentence(scaling: Scaling) -> str:
    """How far more workers help where they help most."""
    rows = list(_rows(scaling))
    what = f"{scaling.workload.network} with {scaling.strategy.name} on {scaling.cluster}"
    if not rows:
        return f"{what}: no number of workers fits."
    machine, best = max(rows, key=lambda row: row[1].samples_per_s)
    there = "" if machine.machine == scaling.cluster else f" on {machine.machine}"
    said = (
        f"{what}: fastest with {count(best.workers, 'worker')}{there}, {number(best.samples_per_s)} samples a second "
    )
    return f"{said}at {percent(best.efficiency, 0)} efficiency, bound by {best.bound}."


def _rows(scaling: Scaling) -> Iterator[Row]:
    return ((machine, outcome) for machine in scaling.machines for outcome in machine.outcomes)


def _section(scaling: Scaling, suffix: str) -> Section:
    rows = list(_rows(scaling))
    currency = next((o.currency for _, o in rows if o.money_per_epoch is not None), "")
    columns = (
        Column("machine"), Column("workers"), Column("machines"), Column("epoch", "s"), Column("samples a second"),
        Column("efficiency", "%"), Column("waiting", "%"), Column("exchange", "%"), Column("staleness"),
        Column("money an epoch", currency), Column("bound by"),
    )  # fmt: skip
    cells: list[tuple[Cell, ...]] = [
        (m.machine, o.workers, o.machines, o.epoch_s or None, o.samples_per_s, 100 * o.efficiency,
         100 * o.waiting_share, 100 * o.communication_share, o.staleness_mean, o.money_per_epoch, o.bound)
        for m, o in rows
    ]  # fmt: skip
    data = table(columns, cells)
    views = tuple(
        View(column.name, data, {"line": "machine", "group": "machine", "x": "workers", "y": column.name, "both": True,
                                 "zero": True, "whole": True})
        for column in columns[3:10]
        if any(value is not None for value in data.values(column.name))
    )  # fmt: skip
    says = cluster_sentence(scaling)
    alone = [f"{brief(m.prediction.iteration_s)} on {m.machine} ({m.prediction.basis})" for m in scaling.machines]
    left_out = tuple(reason for machine in scaling.machines for reason in machine.left_out)
    blocks: list[Figure | TableBlock] = []
    if rows:
        figure = Figure(f"cluster{suffix}", "By number of workers", "lines", views, says, choice="show", wide=True)
        blocks = [figure, TableBlock(f"cluster{suffix}-rows", "Every number of workers", data)]
    sentences = (says, f"A step of one worker by itself, predicted: {listed(alone)}.")
    return Section(f"cluster{suffix}", "On more workers, simulated", sentences, left_out, tuple(blocks))
