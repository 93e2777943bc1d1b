"""Measures a workload: the step that would train it runs, and in some of its iterations the clock looks on."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from time import perf_counter

import torch

from paceline.errors import InputError
from paceline.measure.gpu_session import run_in_blocks
from paceline.measure.mark_cost import mark_cost_s
from paceline.measure.measurement import IterationTime, Measurement
from paceline.measure.memory import peak_memory_bytes
from paceline.measure.module_marks import check_supported
from paceline.measure.rates import device_rates
from paceline.measure.session import SAMPLE_EVERY, Session
from paceline.measure.summary import summarise
from paceline.measure.tape import OUTSIDE, Tape, around
from paceline.step.build import assemble, load_data
from paceline.step.choose import make_step
from paceline.step.flat import FlatStep
from paceline.step.phase import Batch
from paceline.step.placement import choose_device, dtype_of, processor_name
from paceline.step.step import Parts, Step
from paceline.step.tally import Score, Tally
from paceline.workload import Workload

LEAST_SAMPLES = 20
KEEP_SCORES = 500
WHOLE = "(compiled: forward, backward and update)"


def measure(
    workload: Workload,
    *,
    iterations: int = 200,
    step: str = "auto",
    cache: Path | None = None,
    watch: Callable[[int, int], None] | None = None,
) -> Measurement:
    """Where the time of an iteration of `workload` goes; `watch` is told (done, all) now and then."""
    check_supported()
    if iterations < 20:
        raise InputError(f"iterations={iterations} are too few to tell anything: at least 20")
    device, _ = choose_device(workload.device)
    parts = assemble(workload, load_data(workload, cache), device)
    on_gpu = device.type == "cuda"
    if on_gpu and step in ("graph", "compiled"):
        raise InputError(f"a {step} step on a GPU cannot be looked into yet: use --step flat or plain")
    taken, choice = make_step(parts, "flat" if on_gpu and step == "auto" else step)
    if on_gpu and step == "auto":
        choice = replace(choice, reason="training would capture it as a graph, which cannot be looked into yet")
    warm_up = max(5, min(20, iterations // 10))
    every = max(2, min(SAMPLE_EVERY, (iterations - warm_up) // LEAST_SAMPLES))
    session = Session(parts.network, mark_cost_s(), every, warm_up)
    session.extra.append(lambda tape: _marks_of(taken, tape))
    _read_shapes(parts, session)
    try:
        scores = _run_on_gpu(taken, session, iterations, watch) if on_gpu else _run(taken, session, iterations, watch)
    finally:
        session.close()
        taken.close()
    measurement = summarise(
        session,
        device_rates(device, dtype_of(workload)),
        name=workload.network,
        batch=workload.batch,
        device=str(device),
        device_name=torch.cuda.get_device_name(device) if on_gpu else processor_name(),
        step=choice.kind,
        peak_memory_bytes=peak_memory_bytes(device),
        conditions={
            "data": workload.data,
            "optimizer": workload.optimizer,
            "precision": workload.precision,
            "threads": str(torch.get_num_threads()),
            "step": f"{choice.kind}: {choice.reason}",
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
    )
    return replace(measurement, kept=tuple(_with_score(k, scores, workload.top) for k in measurement.kept))


def _with_score(kept: IterationTime, scores: dict[int, Score], top: int) -> IterationTime:
    score = scores.get(kept.number)
    if score is None:
        return kept
    return replace(kept, loss=score.loss, top_1=score.accuracy, top_n=score.top_accuracy)


def _read_shapes(parts: Parts, session: Session) -> None:
    """One forward pass beforehand: a step whose gradient is written out calls no modules."""
    batches = parts.feeder.batches(0)
    x, _ = next(batches)
    close = getattr(batches, "close", None)
    if close is not None:
        close()
    state = parts.generator.get_state()
    buffers = [(buffer, buffer.clone()) for buffer in parts.network.buffers()]
    with session.shapes.watching():
        parts.network(x)
    with torch.no_grad():
        for buffer, value in buffers:
            buffer.copy_(value)
    parts.generator.set_state(state)
    session.shapes_known = True


def _run(step: Step, session: Session, iterations: int, watch: Callable[[int, int], None] | None) -> dict[int, Score]:
    """Runs the iterations; the scores of some of them are counted afterwards, so as not to disturb any."""
    tallies: dict[int, Tally] = {}
    keep_every = -(-iterations // KEEP_SCORES)
    told = perf_counter()
    epoch, left = 0, 0
    session.begin()
    for done in range(iterations):
        if not left:
            step.begin(epoch)
            step._batches = _watched_batches(step._batches, session)
            # The smaller last batch of an epoch is another kind of iteration.
            epoch, left = epoch + 1, max(1, step.parts.feeder.order.full_batches)
        tally = Tally(step.parts.workload.top)
        step.advance(1, tally)
        left -= 1
        session.end_iteration()
        if done % keep_every == 0:
            tallies[done] = tally
        if watch is not None and perf_counter() - told > 0.2:
            watch(done, iterations)
            told = perf_counter()
    return {number: tally.read() for number, tally in tallies.items()}


def _run_on_gpu(
    step: Step, session: Session, iterations: int, watch: Callable[[int, int], None] | None
) -> dict[int, Score]:
    torch.cuda.reset_peak_memory_stats(step.parts.device)
    tally = Tally(step.parts.workload.top)
    epoch, left = 0, 0

    def advance() -> None:
        nonlocal epoch, left
        if not left:
            step.begin(epoch)
            step._batches = _watched_batches(step._batches, session)
            epoch, left = epoch + 1, max(1, step.parts.feeder.order.full_batches)
        step.advance(1, tally)
        left -= 1
        if watch is not None:
            watch(session.number, iterations)

    run_in_blocks(session, step.parts.device, iterations, advance)
    return {}


def _watched_batches(batches: Iterator[Batch], session: Session) -> Iterator[Batch]:
    while True:
        session.mark(("load", ""))
        batch = next(batches, None)
        session.mark(("other", ""))
        if batch is None:
            return
        yield batch


def _marks_of(step: Step, tape: Tape) -> ExitStack:
    """Marks inside the step itself, for one iteration."""
    stack = ExitStack()
    stack.callback(around(step, "take", tape, ("update", ""), ("other", "")))
    if step.kind == "compiled":
        stack.callback(around(step, "whole", tape, ("forward", WHOLE), ("other", "")))
    phases = step.phases if isinstance(step, FlatStep) else []
    for phase in phases:
        if phase.chain is not None:
            stack.callback(around(phase.chain, "gradient", tape, ("forward", OUTSIDE), ("update", "")))
            phase.chain.watch = lambda part, name: tape.mark("edge", (part, name))
            stack.callback(setattr, phase.chain, "watch", None)
    for default in step.parts.phases:
        stack.callback(around(default, "gradient", tape, ("forward", OUTSIDE), ("update", "")))
    return stack
