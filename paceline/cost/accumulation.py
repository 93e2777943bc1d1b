"""The gradient of a batch that is computed in micro-batches: their operations one after another, and the sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from math import prod

from paceline.cost.allocations import FREED, WORKSPACE, Event
from paceline.cost.op_tracing import GradientMemory, NetworkShape, PhaseShape
from paceline.cost.operation import Operation
from paceline.measurement.mark_log import OUTSIDE


def accumulated(parts: Sequence[NetworkShape]) -> NetworkShape:
    """`parts`: the traced gradient of each micro-batch, in order; of a network with one phase."""
    first, *others = parts
    operations = list(first.operations)
    sums = [_sum(prod(shape)) for shape in first.parameter_shapes]
    for part in others:
        operations += [*part.operations, *sums]
    (phase,) = first.phases
    return replace(
        first,
        operations=tuple(operations),
        rows={
            name: replace(
                row,
                calls=sum(part.rows[name].calls for part in parts),
                backward_nodes=sum(part.rows[name].backward_nodes for part in parts),
            )
            for name, row in first.rows.items()
        },
        activation_bytes=max(part.activation_bytes for part in parts),
        phases=(replace(phase, memory=_memory([part.phases[0] for part in parts])),),
    )


def _sum(elements: int) -> Operation:
    size = 4 * elements
    return Operation("add", (elements,), OUTSIDE, "backward", "add", read_bytes=2 * size, written_bytes=size)


def _memory(parts: Sequence[PhaseShape]) -> GradientMemory:
    """Allocations in the order in which the step makes them.

    The gradients of a micro-batch are in use until those of the next are there, and the sum so far until the next sum
    is. Outputs are kept and put together at the end.
    """
    events: list[Event] = []
    numbers = count(1)
    total: list[int] = []
    gradients: list[int] = []
    kept: list[tuple[int, int]] = []
    sizes = [4 * prod(shape) for shape in parts[0].parameter_shapes]
    for part in parts:
        renumbered: dict[int, int] = {}
        block_bytes: dict[int, int] = {}
        for number, size in part.memory.events:
            if size == WORKSPACE:
                continue  # it is the operation's number in the trace of one micro-batch
            if size != FREED:
                renumbered[number], block_bytes[number] = next(numbers), size
            events.append((renumbered[number], size))
        before, gradients = gradients, [renumbered[number] for number in part.memory.gradients]
        kept += [(renumbered[number], block_bytes[number]) for number in part.memory.kept if number in renumbered]
        if not total:
            total = gradients
            continue
        events += [(number, FREED) for number in before if number not in total]
        made = [next(numbers) for _ in sizes]
        events += zip(made, sizes, strict=True)
        events += [(number, FREED) for number in total if number not in gradients]
        total = made
    whole = next(numbers)
    events.append((whole, sum(size for _, size in kept)))
    events += [(number, FREED) for number in (*gradients, *(number for number, _ in kept)) if number not in total]
    whole_batch = zip(*(part.memory.batch_bytes for part in parts), strict=True)
    return replace(
        parts[0].memory,
        events=tuple(events),
        gradients=tuple(total),
        kept=(whole,),
        batch_bytes=tuple(map(sum, whole_batch)),
    )
