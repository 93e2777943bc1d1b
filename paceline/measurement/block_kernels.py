"""What the kernels of a traced block tell: whose they are, how busy each owner was, and a trace to look at."""

from __future__ import annotations

from itertools import groupby, pairwise

from paceline.measurement.kernel_order import KernelOrder
from paceline.measurement.kernels import Kernel, alone_s
from paceline.measurement.tape import Owner, Tape
from paceline.trace import Span, Trace

Whose = list[tuple[int, Owner]]
"""Of every kernel the iteration (or window of iterations) and the owner."""


def owners_in_order(kernels: list[Kernel], by_launch: Whose, order: KernelOrder) -> tuple[Whose, set[int]]:
    """Whose the kernels are by their order, and the iterations in which they were the same as always."""
    whose, alike = list(by_launch), set()
    for number, places in groupby(range(len(kernels)), key=lambda place: by_launch[place][0]):
        mine = list(places)
        owners = order.assign([kernels[place] for place in mine])
        if owners is not None:
            alike.add(number)
            whose[mine[0] : mine[-1] + 1] = [(number, owner) for owner in owners]
    return whose, alike


def busy_s(kernels: list[Kernel], whose: Whose) -> tuple[dict[int, dict[Owner, float]], float]:
    """Seconds by iteration and owner, and those of communication that was hidden behind computing."""
    busy: dict[int, dict[Owner, float]] = {}
    hidden_s = 0.0
    for kernel, (number, owner), seconds in zip(kernels, whose, alone_s(kernels), strict=True):
        owners = busy.setdefault(number, {})
        owners[owner] = owners.get(owner, 0.0) + seconds
        if kernel.communicates:
            hidden_s += (kernel.end - kernel.start) * 1e-9 - seconds
    return busy, hidden_s


def loading_in(tapes: list[Tape]) -> list[tuple[int, int]]:
    """When the host waited for data."""
    return [
        (start, end)
        for tape in tapes
        for (_, (part, _), _, start), (_, _, end, _) in pairwise(tape.marks)
        if part == "load"
    ]


def trace_of(tape: Tape, kernels: list[Kernel], device: str) -> Trace:
    """One iteration, the last of the kernels': what the host was at, and the kernels it launched."""
    origin = tape.marks[0][3]
    host = [
        Span("host", f"{part} {row}".strip(), (start - origin) * 1e-9, (end - origin) * 1e-9)
        for (_, (part, row), _, start), (_, _, end, _) in pairwise(tape.marks)
        if end > start
    ]
    on_device = [
        Span(device, k.name[:120], (k.start - origin) * 1e-9, (k.end - origin) * 1e-9)
        for k in kernels
        if k.launched >= origin
    ]
    return Trace(tuple(host + on_device))
