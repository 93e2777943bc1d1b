"""The same measurement on a GPU: blocks of iterations, because a device that works ahead has no single ones.

Most blocks are untouched and end with a wait for the device. Some are traced without marks, for how long the
device was idle and why; some with marks, for whose kernels they were.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from contextlib import ExitStack
from itertools import pairwise
from time import perf_counter

import torch

from paceline.measure.kernels import Kernel, KernelTrace, attribute, launch_cost_s, traced
from paceline.measure.session import Sample, Session
from paceline.measure.tape import Owner, Tape
from paceline.trace import Span, Trace

BLOCK = 10
TRACED_SHARE = 40  # one block in so many is traced with marks, and one without


def run_in_blocks(session: Session, device: torch.device, iterations: int, advance: Callable[[], None]) -> None:
    """Runs `advance` for all iterations and fills the session's samples and wall times."""
    with traced(device):  # the first trace of a process starts the tracing library, which takes seconds
        advance()
    cost_s = launch_cost_s(device)
    for _ in range(BLOCK):
        advance()
    blocks = max(8, iterations // BLOCK)
    every = max(4, min(2 * TRACED_SHARE, blocks // 4)) // 2 * 2
    idle: list[dict[Owner, float]] = []
    marked: list[tuple[int, list[dict[Owner, float]]]] = []
    for block in range(blocks):
        session.number = block * BLOCK
        if block % every == every // 2 - 1:
            idle.append(_traced_block(session, device, advance, cost_s))
        elif block % every == every - 1:
            marked.append((session.number, _marked_block(session, device, advance)))
        else:
            seconds = _timed_block(device, advance)
            session.walls += [(session.number + i, seconds, False) for i in range(BLOCK)]
    session.number = blocks * BLOCK
    per_iteration: dict[Owner, float] = {}
    for causes in idle:
        for owner, seconds in causes.items():
            per_iteration[owner] = per_iteration.get(owner, 0.0) + seconds / len(idle)
    for first, owners in marked:
        for i, busy in enumerate(owners):
            everything = {**busy, **per_iteration}
            session.samples.append(Sample(first + i, everything, sum(everything.values())))


def _timed_block(device: torch.device, advance: Callable[[], None]) -> float:
    torch.cuda.synchronize(device)
    start = perf_counter()
    for _ in range(BLOCK):
        advance()
    torch.cuda.synchronize(device)
    return (perf_counter() - start) / BLOCK


def _traced_block(
    session: Session, device: torch.device, advance: Callable[[], None], cost_s: float
) -> dict[Owner, float]:
    """Idle seconds of an iteration by cause, from the gaps between kernels."""
    tapes = []
    with traced(device) as trace:
        start = perf_counter()
        for _ in range(BLOCK):
            session.tape = Tape()  # only loading is marked here: it is one of the causes
            session.tape.mark("edge", ("other", ""))
            advance()
            session.tape.mark("edge", ("other", ""))
            tapes.append(session.tape)
        session.tape = None
        torch.cuda.synchronize(device)
        seconds = (perf_counter() - start) / BLOCK
    session.walls += [(session.number + i, seconds, True) for i in range(BLOCK)]
    return idle_causes(trace, tapes, BLOCK, cost_s)


def idle_causes(trace: KernelTrace, tapes: list[Tape], iterations: int, cost_s: float = 0.0) -> dict[Owner, float]:
    """Why the device waited: for its data, for a copy, or because the host had not launched the next kernel yet.

    A launch that the device waited for took `cost_s` longer than it does untraced.
    """
    loading = [
        (start, end)
        for tape in tapes
        for (_, (part, _), _, start), (_, _, end, _) in pairwise(tape.marks)
        if part == "load"
    ]
    causes: dict[Owner, float] = {}
    kernels = sorted(trace.kernels, key=lambda k: k.start)
    end = kernels[0].end if kernels else 0
    for kernel in kernels[1:]:
        if kernel.start > end:
            cause = _cause(kernel, end, loading)
            seconds = (kernel.start - end) * 1e-9
            if cause == "host launching":
                seconds = max(0.0, seconds - cost_s)
            causes["idle", cause] = causes.get(("idle", cause), 0.0) + seconds / iterations
        end = max(end, kernel.end)
    return causes


def _cause(kernel: Kernel, idle_since: int, loading: list[tuple[int, int]]) -> str:
    if kernel.launched < idle_since:
        return "copying" if "Memcpy" in kernel.name else "between kernels"
    place = bisect_right(loading, (kernel.launched, kernel.launched)) - 1
    if place >= 0 and loading[place][1] > idle_since and loading[place][1] <= kernel.launched:
        waited = loading[place][1] - max(loading[place][0], idle_since)
        if 2 * waited > kernel.launched - idle_since:
            return "waiting for data"
    return "host launching"


def _marked_block(session: Session, device: torch.device, advance: Callable[[], None]) -> list[dict[Owner, float]]:
    tapes = []
    with traced(device) as trace:
        start = perf_counter()
        for _ in range(BLOCK):
            session.tape = Tape()
            with ExitStack() as stack:
                stack.enter_context(session.marks.installed())
                for extra in session.extra:
                    stack.enter_context(extra(session.tape))
                session.tape.mark("edge", ("other", ""))
                advance()
                session.tape.mark("edge", ("other", ""))
            session.backwards += session.marks.backwards
            tapes.append(session.tape)
        session.tape = None
        torch.cuda.synchronize(device)
        seconds = (perf_counter() - start) / BLOCK
    session.walls += [(session.number + i, seconds, True) for i in range(BLOCK)]
    session.trace = _kernel_trace(trace, tapes[-1], str(device))
    return attribute(trace, tapes)


def _kernel_trace(trace: KernelTrace, tape: Tape, device: str) -> Trace:
    """The last iteration: what the host was at, and the kernels it launched."""
    origin = tape.marks[0][3]
    host = [
        Span("host", f"{part} {row}".strip(), (start - origin) * 1e-9, (end - origin) * 1e-9)
        for (_, (part, row), _, start), (_, _, end, _) in pairwise(tape.marks)
        if end > start
    ]
    kernels = [
        Span(device, k.name[:120], (k.start - origin) * 1e-9, (k.end - origin) * 1e-9)
        for k in trace.kernels
        if k.launched >= origin
    ]
    return Trace(tuple(host + kernels))
