"""A workload simulated with different numbers of workers, on each kind of machine (`simulate --cluster`)."""

from __future__ import annotations

from collections.abc import Iterator

from paceline.formatting import count, duration, listed, percent, rate
from paceline.held_objects import shown_name
from paceline.reporting.figure import Block, Cell, Column, Figure, Section, Table, TableBlock, View, table
from paceline.simulation.on_cluster import ClusterOutcome
from paceline.simulation.scaling import MachineScaling, Scaling

Row = tuple[MachineScaling, ClusterOutcome]
METRICS = ("throughput", "epoch time", "efficiency", "waiting", "exchange", "staleness", "cost per epoch")


def cluster_sentence(scaling: Scaling) -> str:
    """The number of workers with the highest throughput."""
    rows = list(_rows(scaling))
    network = shown_name(scaling.workload.network)
    if not rows:
        return f"No simulated number of workers fits {network} on {scaling.cluster}."
    machine, best = max(rows, key=lambda row: row[1].samples_per_s)
    there = "" if machine.machine == scaling.cluster else f" on {machine.machine}"
    workers = count(best.workers, "worker")
    said = f"{workers} train {network}{there} at" if len(rows) == 1 else f"{network} is fastest with {workers}{there}:"
    speed = f"{rate(best.samples_per_s)} ({percent(best.efficiency, 0)} efficiency)"
    return f"In simulation, {said} {speed}, limited by {best.bound}."


def _rows(scaling: Scaling) -> Iterator[Row]:
    return ((machine, outcome) for machine in scaling.machines for outcome in machine.outcomes)


def cluster_figure(scaling: Scaling, name: str) -> Figure:
    """A view for each metric, throughput first."""
    data = _table(scaling)
    options = {"line": "machine", "x": "workers", "both": True, "zero": True, "whole": True}
    views = tuple(
        View(metric, data, {**options, "y": metric, **({"ideal": "ideal"} if metric == "throughput" else {})})
        for metric in METRICS
        if any(value is not None for value in data.values(metric))
    )
    title = f"{shown_name(scaling.workload.network)} with {scaling.strategy.name}, simulated"
    return Figure(name, title, "lines", views, cluster_sentence(scaling), wide=True)


def _table(scaling: Scaling) -> Table:
    rows = list(_rows(scaling))
    currency = next((o.currency for _, o in rows if o.money_per_epoch is not None), "")
    columns = (
        "machine", "workers", "machines", Column("epoch time", "s"), Column("throughput", "samples/s"),
        Column("ideal", "samples/s"), Column("efficiency", "%"), Column("waiting", "%"), Column("exchange", "%"),
        "staleness", Column("cost per epoch", currency), "limited by",
    )  # fmt: skip
    cells: list[tuple[Cell, ...]] = [
        (
            m.machine, o.workers, o.machines, o.epoch_s or None, o.samples_per_s, o.samples_per_s / o.efficiency,
            100 * o.efficiency, 100 * o.waiting_share, 100 * o.communication_share, o.staleness_mean,
            o.money_per_epoch, o.bound,
        )
        for m, o in rows
    ]  # fmt: skip
    return table(columns, cells)


def cluster_section(scaling: Scaling, suffix: str) -> Section:
    alone = [f"{duration(m.prediction.iteration_s)} on {m.machine} ({m.prediction.basis})" for m in scaling.machines]
    left_out = tuple(reason for machine in scaling.machines for reason in machine.left_out)
    blocks: tuple[Block, ...] = ()
    if any(machine.outcomes for machine in scaling.machines):
        drawn = cluster_figure(scaling, f"cluster{suffix}")
        blocks = (drawn, TableBlock(f"cluster{suffix}-rows", "All numbers of workers", drawn.views[0].table))
    sentences = (cluster_sentence(scaling), f"Predicted step time of a single worker: {listed(alone)}.")
    return Section(f"cluster{suffix}", "Simulated cluster", sentences, left_out, blocks)
