"""How simulated time was spent: each worker's computing, communicating and waiting, and a bounded trace."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from paceline.step.tally import Score
from paceline.strategy.distribution import FaultRecord, WorkerRecord
from paceline.trace import Span, Trace

SPANS = 2_000  # a trace keeps the first of them
FAULTS = 200


@dataclass(slots=True)
class WorkerTime:
    """The time of one worker."""

    starts: int = 0
    since_s: float = 0.0
    """The start of its present incarnation."""
    alive_s: float = 0.0
    """Seconds that earlier incarnations were alive."""
    computing_s: float = 0.0
    communicating_s: float = 0.0
    batches: int = 0
    busy_until_s: float = 0.0
    """The end of the computation that is charged already."""
    span: int | None = None
    """The index in the trace of its last computation."""


class WorkerTimes:
    def __init__(self, spans: int = SPANS) -> None:
        self.workers: dict[int, WorkerTime] = {}
        self.server_s = 0.0
        self.faults: list[FaultRecord] = []
        self.fault_count = 0
        self._spans: list[Span] = []
        self._most_spans = spans

    def joined(self, worker: int, now_s: float) -> WorkerTime:
        mine = self.workers.setdefault(worker, WorkerTime())
        mine.starts += 1
        mine.since_s = now_s
        return mine

    def left(self, worker: int, now_s: float) -> None:
        mine = self.workers[worker]
        mine.alive_s += now_s - mine.since_s
        mine.since_s = math.inf
        if mine.busy_until_s > now_s:  # what it was in the middle of was charged in full
            mine.computing_s -= mine.busy_until_s - now_s
            if mine.span is not None:
                cut = self._spans[mine.span]
                self._spans[mine.span] = replace(cut, end_s=min(cut.end_s, now_s))

    def fault(self, now_s: float, what: str, worker: int | None, step: int | None = None, note: str = "") -> None:
        self.fault_count += 1
        if len(self.faults) < FAULTS:
            self.faults.append(FaultRecord(now_s, what, worker, step, note))

    def span(self, who: str, what: str, start_s: float, end_s: float, note: str = "") -> int:
        """Its place in the trace; while it is `tracing`, there is one."""
        self._spans.append(Span(who, what, start_s, end_s, note))
        return len(self._spans) - 1

    @property
    def tracing(self) -> bool:
        return len(self._spans) < self._most_spans

    def end(self, now_s: float) -> None:
        for worker, mine in self.workers.items():
            if mine.since_s < math.inf:
                self.left(worker, now_s)

    def trace(self, until_s: float) -> Trace:
        """What was over by then."""
        return Trace(tuple(span for span in self._spans if span.end_s <= until_s))

    def records(
        self, scores: dict[int, Score], accuracies: dict[int, list[float]] | None = None
    ) -> tuple[WorkerRecord, ...]:
        made = []
        for worker, mine in sorted(self.workers.items()):
            score, by_epoch = scores.get(worker, Score()), tuple((accuracies or {}).get(worker, ()))
            waiting_s = max(0.0, mine.alive_s - mine.computing_s - mine.communicating_s)
            record = WorkerRecord(
                worker, mine.batches, score.samples, score.loss, score.accuracy,
                mine.computing_s, mine.communicating_s, waiting_s, mine.starts, by_epoch,
            )  # fmt: skip
            made.append(record)
        return tuple(made)
