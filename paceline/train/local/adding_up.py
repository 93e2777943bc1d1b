"""A worker's side of sums that the members of a group make among themselves.

All that is waited for is waited for in shared memory, where the server says when it is no use any more: a member that
computes for long is not told from one that is gone by a timeout. Only when all members are there does the collective
begin, and then it has a short time. Whoever cannot take part hands over its own payload, as without a collective.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor

from paceline.errors import PacelineError
from paceline.step.reason import reason
from paceline.strategy.instructions import Compute
from paceline.strategy.learner import Learner
from paceline.strategy.refusals import is_finite
from paceline.train.local.communicator import TOGETHER_S, Communicator, Forming
from paceline.train.local.memory import Memory
from paceline.train.local.settings import Settings
from paceline.train.local.span_log import ADD_UP, WAIT, SpanLog
from paceline.train.local.words import LINE, SLOT_WORDS, Of

FAILURES = 5
"""So many in a row without a sum in between are not somebody's death."""
SHORT_S, LONG_S = 20e-6, 1e-3


class _GivenUp(Exception):
    """The sum will not come about, and need not."""


class AddingUp:
    def __init__(
        self, settings: Settings, memory: Memory, learner: Learner, spans: SpanLog, beat: Callable[[], None]
    ) -> None:
        self.settings, self.memory, self.learner, self.spans, self.beat = settings, memory, learner, spans, beat
        strategy, workers, number = settings.strategy, settings.workers, settings.number
        self.group = strategy.group_of(number, workers)
        self.members = [worker for worker in range(workers) if strategy.group_of(worker, workers) == self.group]
        self.words = memory.slots[number * SLOT_WORDS : (number + 1) * SLOT_WORDS]
        self.is_first = number == self.members[0]
        self.payload: Tensor | None = None
        """Where payloads are computed, if not in the slot: on a GPU, which most of them never leave."""
        if settings.collective == "nccl":
            self.payload = torch.zeros_like(learner.local)
            learner.bind(self.payload)
        self.number, self.since, self.since_now = 0, 0, 0
        self.communicator: Communicator | None = None
        self.failures = 0

    def begin(self, task: Compute) -> None:
        """Reads which sum the task is part of; no other task is given before it is handed over."""
        self.number, self.since = self.words[Of.SUM], self.words[Of.TOGETHER_SINCE]
        if self.words[Of.GIVEN] != task.sequence:
            self.number = 0

    def finish(self, slot: Tensor, samples: int, steps: int) -> int:
        """A payload is computed: the number of the sum it is in now, or 0 if it lies in its slot by itself."""
        payload = slot if self.payload is None else self.payload
        if self.number and is_finite(payload):  # the server refuses one that is not, and names its worker
            try:
                if self._added_up(payload, slot, samples / steps):
                    self.failures = 0
                    return self.number
            except _GivenUp:
                pass
            except (RuntimeError, TimeoutError) as error:
                self._count_failure(error)
        if self.number:
            self._part()
        if payload is not slot:
            slot.copy_(payload)
        return 0

    def _added_up(self, payload: Tensor, slot: Tensor, samples: float) -> bool:
        """Whether the mean of all payloads is a number; the first member leaves it in its slot."""
        self._wait_for_others()
        start_ns = time.monotonic_ns()
        try:
            communicator = self._formed()
            weight = samples if self.settings.strategy.exchange == "gradient" else 1.0
            n, vector = self.learner.parameters, communicator.vector
            torch.mul(payload[:n], weight, out=vector[:n])
            vector[n:-1].copy_(payload[n:])
            vector[-1] = weight
            communicator.begin()
            self._wait(communicator.is_done, TOGETHER_S)
            communicator.finish()
            if self.is_first:
                vector[:n].div_(vector[-1].clone())
                vector[n:-1].div_(len(self.members))
                if not is_finite(vector):
                    return False
                slot.copy_(vector[:-1])
            return True
        finally:
            now_ns = time.monotonic_ns()
            self.words[Of.COMMUNICATION_NS] += now_ns - start_ns
            self.spans.add(ADD_UP, start_ns, now_ns)

    def _wait_for_others(self) -> None:
        start_ns = time.monotonic_ns()
        self.words[Of.ENTERED] = self.number
        slots = self.memory.slots
        entered = [worker * SLOT_WORDS + Of.ENTERED for worker in self.members]
        try:
            self._wait(lambda: all(slots[word] >= self.number for word in entered))
        finally:
            now_ns = time.monotonic_ns()
            self.words[Of.WAITING_NS] += now_ns - start_ns
            self.spans.add(WAIT, start_ns, now_ns)

    def _formed(self) -> Communicator:
        """That of these lives of the members: the one there is, or a new one."""
        if self.communicator is None or self.since_now != self.since:
            self._part()
            forming = Forming(self._form)
            try:
                self._wait(forming.is_done, TOGETHER_S)
                self.communicator, self.since_now = forming.result(), self.since
            except BaseException:
                forming.abandon()
                raise
        return self.communicator

    def _form(self) -> Communicator:
        settings, local = self.settings, self.learner.local
        device = local.device if settings.collective == "nccl" else torch.device("cpu")
        vector = torch.zeros(self.learner.size + 1, dtype=local.dtype, device=device)
        rank, key = self.members.index(settings.number), f"{self.group}/{self.since}"
        return Communicator(settings.collective, settings.rendezvous, key, rank, len(self.members), vector)

    def _part(self) -> None:
        if self.communicator is not None:
            self.communicator.abandon()
            self.communicator = None

    def _wait(self, is_done: Callable[[], bool], within_s: float | None = None) -> None:
        nap_s, start_s = SHORT_S, time.monotonic()
        while not is_done():
            if self.memory.given_up[self.group * LINE] >= self.number:
                raise _GivenUp
            if within_s is not None and time.monotonic() - start_s > within_s:
                raise TimeoutError(f"not done within {within_s:g} s")
            time.sleep(nap_s)
            nap_s = min(2 * nap_s, LONG_S)
            self.beat()

    def _count_failure(self, error: Exception) -> None:
        """It may be that a member died. If it is something else, the run should not go on as if it were not."""
        self.failures += 1
        if self.failures >= FAILURES:
            raise PacelineError(
                f"{self.settings.collective} failed {FAILURES} times in a row: {reason(error)}; use --collective shared"
            )
