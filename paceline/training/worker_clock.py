"""Where a worker's time goes, layer by layer: the clock of one process of a distributed run.

An iteration is a task, with what it waits for, fetches, computes and pushes. What is found is written now and then
while the worker waits anyway, for a worker may be ended at any moment.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from time import perf_counter

import torch

from paceline import record
from paceline.measurement.mark_cost import mark_cost_s
from paceline.measurement.mark_log import LOOP, OUTSIDE, MarkLog, SpanKey, mark_around
from paceline.measurement.measured_step import prepare_session
from paceline.measurement.measurement import Measurement
from paceline.measurement.measuring import measured_session
from paceline.measurement.rates import DeviceRates, device_rates
from paceline.measurement.session import Session
from paceline.step.placement import dtype_of
from paceline.strategy.learner import Learner
from paceline.training.worker_measurements import file_of

WRITE_EVERY_S = 1.0
EVERY, WARM_UP = 10, 5  # sampling is reduced once there are enough samples


Marked = tuple[object, str, str, str]
"""A method to be marked: of what, its name, the part that it is of, and the row."""


class WorkerClock:
    def __init__(self, learner: Learner, worker: int, methods: list[Marked], directory: Path) -> None:
        """`methods` are the driver's own, around what the learner does; after them comes communication."""
        self.learner, self.worker, self.methods, self.path = learner, worker, methods, file_of(directory, worker)
        parts = learner.parts
        self.session = Session(parts.network, mark_cost_s(), every=EVERY, warm_up=WARM_UP)
        prepare_session(self.session, parts)
        self.session.extra_marks.append(self._marks)
        self.session.first_key = ("idle", "waiting for a task")
        self._rates: DeviceRates | None = None
        self._written, self._written_at_s = 0, 0.0

    def begin(self) -> None:
        self.session.begin()

    def end_task(self) -> None:
        self.session.end_iteration()

    def _marks(self, log: MarkLog) -> ExitStack:
        stack, learner = ExitStack(), self.learner

        def mark(thing: object, method: str, part: str, row: str = "", after: SpanKey = LOOP) -> None:
            stack.callback(mark_around(thing, method, log, (part, row), after))

        for method in self.methods:
            mark(*method, after=("communicate", ""))
        mark(learner, "run", "update", after=("communicate", ""))
        mark(learner.source, "batch", "load")
        for phase in learner.phases:
            mark(phase, "compute", "forward", OUTSIDE, ("update", ""))
            if phase.chain is not None:
                mark(phase.chain, "gradient", "forward", OUTSIDE, ("update", ""))
                phase.chain.watch = lambda part, row: log.mark("edge", (part, row))
                stack.callback(setattr, phase.chain, "watch", None)
        return stack

    def write_if_due(self) -> None:
        """While the worker waits. The next iteration's beginning is then lost, not its measurement."""
        samples = len(self.session.samples)
        if samples == self._written or perf_counter() - self._written_at_s < WRITE_EVERY_S:
            return
        self.session.close()
        with torch.inference_mode(False):
            record.save(self._measurement(), self.path)
        self._written, self._written_at_s = samples, perf_counter()
        self.session.begin()

    def _measurement(self) -> Measurement:
        parts = self.learner.parts
        self._rates = self._rates or device_rates(parts.device, dtype_of(parts.workload))
        how = {"strategy": self.learner.strategy.name, "workers": str(self.learner.workers)}
        device = f"worker {self.worker} on {parts.device}"
        return measured_session(self.session, parts, self._rates, "flat", how, device)
