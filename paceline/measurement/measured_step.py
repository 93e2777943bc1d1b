"""A step with a clock: it trains as usual, and a session records where its iterations begin and end.

An iteration lasts from the request for one batch to the request for the next, so the step keeps its own loop and
speed. A captured step takes several iterations at once; they are measured window by window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from paceline.measurement.captured import captured_kernel_order
from paceline.measurement.gpu_session import GpuSession
from paceline.measurement.mark_cost import mark_cost_s
from paceline.measurement.mark_log import LOOP, SCORE
from paceline.measurement.session import SAMPLE_EVERY, Session
from paceline.measurement.step_marks import mark_outside_graph, mark_step
from paceline.step.calling import call_network
from paceline.step.flat import FlatStep
from paceline.step.graph import GraphStep
from paceline.step.phase import Batch, LossPhase, Outcome
from paceline.step.step import Parts, Step
from paceline.step.tally import Score, Tally

MIN_SAMPLES = 20
ALTERNATING_FROM = 150
"""Fewer iterations have too few windows of several; then each sample is an iteration between untouched ones."""
PAUSE_S = 1e-3
KEEP_SCORES = 500
KEEP_SCORES_ON_GPU = 40  # they keep outputs in GPU memory until they are read


class MeasuredStep(Step):
    """`step` with a clock. Call `plan` before the first iteration to set the sampling rate."""

    def __init__(self, step: Step) -> None:
        super().__init__(step.parts)
        self.kind = step.kind  # type: ignore[misc]
        self.step, self.stride = step, stride_of(step)
        self.session = _session_for(step)
        self.keep_every = 1
        self._kept: dict[int, Tally] = {}
        self._record_scores = True
        """Whether the scores of the current iteration are recorded."""
        self._keep_from = 0
        self._skipped_from: int | None = None
        """The first of the batches that are passed on without being timed."""
        self._full_batches = step.parts.feeder.order.full_batches
        self._watching = False
        """Whether an iteration is being timed."""
        self._left_at_s = 0.0
        """When `advance` last returned; time after that may belong to something else."""

    def plan(self, iterations: int, trains: bool = True) -> None:
        """Chooses the sampling rate for about `iterations`: at least twenty samples if possible.

        Without `trains` the iterations are only run to be measured, and half of them may be sampled.
        """
        session, most = self.session, KEEP_SCORES
        if isinstance(session, GpuSession):
            session.plan(iterations)
            most = KEEP_SCORES_ON_GPU
        else:
            session.warm_up = max(1, min(20, iterations // 10))
            session.every = session.densest = max(2, min(SAMPLE_EVERY, (iterations - session.warm_up) // MIN_SAMPLES))
            if not trains and iterations >= ALTERNATING_FROM:
                session.alternate()
        self.keep_every = max(1, -(-iterations // most))

    def begin(self, epoch: int, first: int = 0) -> None:
        if perf_counter() - self._left_at_s > PAUSE_S:
            self.stop_watching()  # e.g. a validation; only on a GPU can a block still be open here
        self._skipped_from = None
        self.step.begin(epoch, first)
        if not isinstance(self.step, GraphStep):
            self.step._batches = self._watched(self.step._batches)

    def advance(self, count: int, tally: Tally) -> None:
        noting = _RecordingTally(tally, self)
        try:
            if isinstance(self.step, GraphStep):
                self._advance_windows(count, noting)
            else:
                self.step.advance(count, noting)
        except BaseException:
            self.stop_watching()
            raise
        self._left_at_s = perf_counter()
        if not isinstance(self.session, GpuSession):
            between = self._skipped_from is not None
            self._end_iteration()
            self.stop_watching()
            if between:  # the next batches are still passed on without being timed
                self._skipped_from = self.step.next

    def _advance_windows(self, count: int, tally: Tally) -> None:
        while count:
            now = min(count, self.stride)
            whole = now == self.stride and self.step.next + now <= self._full_batches
            if not whole:
                self.stop_watching()
            elif not self._watching:
                self._start_watching()
            self.step.advance(now, tally)
            if whole:
                self.session.end_iteration(now)
            count -= now

    def _watched(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        """Passes batches on and times them. Untouched iterations pay little more than this generator."""
        session, step, full_batches = self.session, self.step, self._full_batches
        on_gpu = isinstance(session, GpuSession)
        try:
            while True:
                self._end_iteration()
                # The smaller last batch of an epoch is not comparable.
                if step.next >= full_batches:
                    self.stop_watching()
                elif not self._watching:
                    self._start_watching()
                if session.log is not None:
                    self._record_scores = True
                    session.mark(("load", ""))
                    batch = next(batches, None)
                    session.mark(LOOP)
                else:
                    skipped = 0 if on_gpu else min(session.skippable(), full_batches - step.next)
                    if skipped > 0:
                        self._skipped_from, self._record_scores = step.next, False
                        yield from islice(batches, skipped)
                        continue
                    self._record_scores = on_gpu or session.number >= self._keep_from
                    batch = next(batches, None)
                if batch is None:
                    self.stop_watching()
                    return
                yield batch
        finally:
            close = getattr(batches, "close", None)
            if close is not None:
                close()

    def _end_iteration(self) -> None:
        if self._skipped_from is not None:
            self.session.skip(self.step.next - self._skipped_from)
            self._skipped_from = None
        elif self._watching:
            self.session.end_iteration()

    def _start_watching(self) -> None:
        self.session.begin()
        self._watching = True

    def stop_watching(self) -> None:
        """What follows, a validation or the end of training, belongs to no iteration."""
        self.session.close()
        self._watching = False

    def scores(self) -> dict[int, Score]:
        """Loss and accuracy of the recorded iterations."""
        return {number + i: tally.read() for number, tally in self._kept.items() for i in range(self.stride)}

    def take(self, batch: Batch) -> Outcome:
        return self.step.take(batch)

    def state(self) -> dict[str, Any]:
        return self.step.state()

    def load_state(self, state: dict[str, Any]) -> None:
        self.step.load_state(state)

    def close(self) -> None:
        self.stop_watching()
        self.step.close()

    def _tally_to_keep(self, top: int) -> Tally | None:
        """A separate tally for this iteration, if its score is recorded."""
        number = self.session.current
        if not self._watching or number is None or (number < self._keep_from and number not in self._kept):
            return None
        if number not in self._kept:
            self._kept[number] = Tally(top)
            self._keep_from = (number // self.keep_every + 1) * self.keep_every
        return self._kept[number]


class _RecordingTally(Tally):
    """Forwards everything to another tally and records some iterations' scores; its time is the `SCORE` row."""

    def __init__(self, into: Tally, step: MeasuredStep) -> None:
        super().__init__(into.top)
        self.into, self.step, self.session = into, step, step.session

    def add(self, loss: Tensor | None, output: Tensor | None, target: Tensor) -> None:
        if self.step._record_scores:
            self._note(lambda tally: tally.add(loss, output, target))
        else:
            self.into.add(loss, output, target)

    def add_many(self, losses: Tensor | None, size: int, outputs: Tensor | None, targets: Tensor) -> None:
        # A recorded tally reads its tensors at once: the next window overwrites them.
        self._note(lambda tally: tally.add_many(losses, size, outputs, targets))

    def _note(self, add: Callable[[Tally], None]) -> None:
        self.session.mark(("forward", SCORE))
        add(self.into)
        kept = self.step._tally_to_keep(self.top)
        if kept is not None:
            add(kept)
        self.session.mark(LOOP)


def stride_of(step: Step) -> int:
    """The number of iterations the step takes at once."""
    return step.windows[0].length if isinstance(step, GraphStep) else 1


def _session_for(step: Step) -> Session:
    parts, began_s = step.parts, perf_counter()
    session: Session
    if parts.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(parts.device)
        session = GpuSession(
            parts.network,
            parts.device,
            stride=stride_of(step),
            order=captured_kernel_order(step) if isinstance(step, GraphStep) else None,
            captured=isinstance(step, GraphStep),
        )
        session.lengths.fit_epoch(parts.feeder.order.full_batches)
        session.light_marks.append(lambda log: mark_outside_graph(step, log))
    else:
        session = Session(parts.network, mark_cost_s())
        written_out = isinstance(step, FlatStep) and all(phase.chain is not None for phase in step.phases)
        session.layers = step.kind != "compiled"
        session.modules = session.layers and not written_out
    session.extra_marks.append(lambda log: mark_step(step, log))
    prepare_session(session, parts)
    session.overhead.prelude_s += perf_counter() - began_s
    return session


def prepare_session(session: Session, parts: Parts) -> None:
    """For steps, which evaluate nothing: a call without gradients is a part of training, such as sampling."""
    session.marks.evaluates = session.shapes.evaluates = False
    if all(type(phase) is LossPhase for phase in parts.phases) and ":" not in parts.workload.loss:
        _read_shapes(parts, session)  # others may call the network differently; then the first iteration records them


def _read_shapes(parts: Parts, session: Session) -> None:
    """Records shapes in an extra forward pass: a hand-written gradient calls no modules. State is restored."""
    batches = parts.feeder.batches(0)
    x, _ = next(batches)
    batches.close()
    state = parts.generator.get_state()
    buffers = [(buffer, buffer.clone()) for buffer in parts.network.buffers()]
    with session.shapes.recording():
        call_network(parts.network, x)
    with torch.no_grad():
        for buffer, value in buffers:
            buffer.copy_(value)
    parts.generator.set_state(state)
    session.shapes_known = True
